# Scenes of 3 to 7 garments with boxes and masks, in COCO's format.
data_root = '{{$VITPLUG_GARMENTS:data/garments}}/coco'
data_help = dict(root=data_root, command='python tools/dataset_converters/make_garment_scenes.py')
metainfo = dict(
    classes=(
        'T-shirt/top', 'Trouser', 'Pullover', 'Dress', 'Coat',
        'Sandal', 'Shirt', 'Sneaker', 'Bag', 'Ankle boot',
    ),
    palette=[
        (230, 60, 50), (250, 150, 30), (250, 220, 60), (150, 210, 70), (40, 150, 80),
        (60, 200, 210), (60, 110, 230), (140, 80, 210), (240, 120, 200), (160, 110, 70),
    ],
)  # fmt: skip

# Colours carry no information about a garment: convert to grey with full contrast.
to_grey = [
    dict(type='LoadImageFromFile'),
    dict(type='mmpretrain.NumpyToPIL', to_rgb=True),
    dict(type='mmpretrain.torchvision/Grayscale'),
    dict(type='mmpretrain.torchvision/RandomAutocontrast', p=1.0),
    dict(type='mmpretrain.PILToNumpy'),
]
train_pipeline = [
    *to_grey,
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
# Annotations are loaded after the resize: the evaluation needs them at the original size.
test_pipeline = [
    *to_grey,
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        ann_file='annotations/instances_train.json',
        data_prefix=dict(img='train/'),
        filter_cfg=dict(filter_empty_gt=True),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=4,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        ann_file='annotations/instances_val.json',
        data_prefix=dict(img='val/'),
        test_mode=True,
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='CocoMetric', ann_file=f'{data_root}/annotations/instances_val.json', metric=['bbox', 'segm'])
test_evaluator = val_evaluator
