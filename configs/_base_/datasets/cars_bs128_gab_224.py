# Stanford Cars at 224 with the transforms of the GAB paper, on the data set's own split.
data_preprocessor = dict(num_classes=196, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=256, crop_ratio_range=(0.8, 1.0), backend='pillow', interpolation='bicubic'),
    dict(type='NumpyToPIL', to_rgb=True),
    dict(type='torchvision/RandomRotation', degrees=15, interpolation='bilinear'),
    dict(type='torchvision/ColorJitter', brightness=0.4, contrast=0.4, saturation=0.4),
    dict(type='torchvision/RandomHorizontalFlip'),
    dict(type='torchvision/CenterCrop', size=224),
    dict(type='PILToNumpy', to_bgr=True),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(type='StanfordCars', data_root='data/stanfordcars', split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=100,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(type='StanfordCars', data_root='data/stanfordcars', split='test', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
