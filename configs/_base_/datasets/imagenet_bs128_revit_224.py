# ImageNet-1k at 224 with ReViT-B's augmentation: RandAugment m9-n6-mstd0.5-inc1 and random erasing.
_base_ = 'imagenet_bs128_224.py'
train_pipeline = _base_.train_pipeline
train_pipeline[3].num_policies = 6
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
