# CIFAR-10 as JPEG or PNG files in class folders, train/CLASS and test/CLASS, at its own 32 x 32 pixels.
data_root = '{{$VITPLUG_CIFAR10:data/cifar10_folders}}'
data_help = dict(root=data_root, command='python tools/dataset_converters/cifar10.py FOLDER')
classes = ('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog', 'horse', 'ship', 'truck')

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomCrop', crop_size=32, padding=4),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=64,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
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
    batch_size=250,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(train_dataloader['dataset'], data_prefix='test', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
