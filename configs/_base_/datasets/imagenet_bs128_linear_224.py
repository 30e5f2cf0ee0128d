# ImageNet-1k at 224 for a linear classifier on frozen features: random crops and flips alone.
_base_ = 'imagenet_bs128_224.py'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    sampler=dict(_delete_=True, type='InfiniteSampler', shuffle=True), dataset=dict(pipeline=train_pipeline)
)
