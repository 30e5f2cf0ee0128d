# CIFAR-10 enlarged to 64 x 64: backbones trained on it have the patch size of the models that segment and detect.
_base_ = 'cifar10_folders.py'
enlarge = dict(type='Resize', scale=64)
train_pipeline = _base_.train_pipeline
train_pipeline.insert(-1, enlarge)
test_pipeline = _base_.test_pipeline
test_pipeline.insert(-1, enlarge)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
