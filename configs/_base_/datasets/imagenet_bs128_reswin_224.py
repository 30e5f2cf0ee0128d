# ImageNet-1k at 224 with the augmentation of ReSwin's code: RandAugment m9-n6-mstd0.5-inc1, little random erasing. The
# test crop is 0.91 of an image.
_base_ = 'imagenet_bs128_revit_224.py'
train_pipeline = _base_.train_pipeline
train_pipeline[4].erase_prob = 0.1
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 246
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
