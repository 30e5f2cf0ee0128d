# As camvid.py, with four crops of 224 x 224 in a batch.
_base_ = 'camvid.py'
train_pipeline = _base_.train_pipeline
train_pipeline[3].crop_size = (224, 224)
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
