# One handwritten digit per image, images of several sizes, in ImageNet's format (class folders).
digits_root = '{{$VITPLUG_DIGITS:data/digits}}'
data_root = f'{digits_root}/imagenet'
data_help = dict(root=data_root, command=f'python tools/dataset_converters/make_digit_scenes.py --out {digits_root}')
classes = tuple('0123456789')

# Colours carry no information about a digit: convert to grey with full contrast.
to_grey = [
    dict(type='LoadImageFromFile'),
    dict(type='NumpyToPIL', to_rgb=True),
    dict(type='torchvision/Grayscale'),
    dict(type='torchvision/RandomAutocontrast', p=1.0),
    dict(type='torchvision/Resize', size=(32, 32)),
]
# No flips: a mirrored digit is not the same digit.
train_pipeline = [
    *to_grey,
    dict(
        type='torchvision/RandomAffine',
        degrees=12,
        translate=(0.08, 0.08),
        scale=(0.9, 1.3),
        shear=10,
        interpolation='bilinear',
        fill=128,
    ),
    dict(type='PackInputs'),
]
test_pipeline = [*to_grey, dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=32,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='CustomDataset',
        data_root=data_root,
        data_prefix='train',
        metainfo=dict(classes=classes),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=100,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(train_dataloader['dataset'], data_prefix='val', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
