# ImageNet-1k at 384 for fine-tuning: DeiT's augmentation with random erasing and repeated augmentation. Tests use whole
# images.
_base_ = 'imagenet_half.py'
train_pipeline = _base_.train_pipeline
train_pipeline[1].scale = 384
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 384
test_pipeline[2].crop_size = 384
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'), dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
