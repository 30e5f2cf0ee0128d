# Oxford-IIIT Pet at 224, with the splits and transforms of the GAB paper's script: all images pooled and split
# 70 : 15 : 15, torchvision's transforms with their default interpolation (bilinear, nearest for the rotation).
data_root = 'data/oxford_pets'
data_help = dict(root=data_root, command='python tools/dataset_converters/pooled_splits.py pets data/oxford_pets')
data_preprocessor = dict(num_classes=37, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)

train_pipeline = [
    # As in ImageFolder: Pillow for every file format, without rotation by EXIF.
    dict(type='LoadImageFromFile', color_type='color_ignore_orientation', imdecode_backend='pillow'),
    dict(type='NumpyToPIL', to_rgb=True),
    dict(type='torchvision/RandomResizedCrop', size=256, scale=(0.8, 1.0)),
    dict(type='torchvision/RandomRotation', degrees=15),
    dict(type='torchvision/ColorJitter', brightness=0.4, contrast=0.4, saturation=0.4),
    dict(type='torchvision/RandomHorizontalFlip'),
    dict(type='torchvision/CenterCrop', size=224),
    dict(type='PILToNumpy', to_bgr=True),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile', color_type='color_ignore_orientation', imdecode_backend='pillow'),
    dict(type='NumpyToPIL', to_rgb=True),
    dict(type='torchvision/Resize', size=256),
    dict(type='torchvision/CenterCrop', size=224),
    dict(type='PILToNumpy', to_bgr=True),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='CustomDataset',
        data_root=data_root,
        data_prefix='images',
        ann_file='meta/pooled_train.txt',
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=100,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(train_dataloader['dataset'], ann_file='meta/pooled_val.txt', pipeline=test_pipeline, test_mode=True),
)
test_dataloader = dict(val_dataloader, dataset=dict(val_dataloader['dataset'], ann_file='meta/pooled_test.txt'))
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
