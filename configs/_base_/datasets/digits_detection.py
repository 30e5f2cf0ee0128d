# Scenes of 3 to 7 handwritten digits with boxes and masks, in COCO's format.
_base_ = '../loaders.py'
data_root = '{{$VITPLUG_DIGITS:data/digits}}/coco'
data_help = dict(root=data_root, command='python tools/dataset_converters/make_digit_scenes.py')
metainfo = dict(
    classes=tuple('0123456789'),
    palette=[
        (230, 60, 50), (250, 150, 30), (250, 220, 60), (150, 210, 70), (40, 150, 80),
        (60, 200, 210), (60, 110, 230), (140, 80, 210), (240, 120, 200), (160, 110, 70),
    ],
)  # fmt: skip

# Colours carry no information about a digit: convert to grey with full contrast.
to_grey = [
    dict(type='LoadImageFromFile'),
    dict(type='mmpretrain.NumpyToPIL', to_rgb=True),
    dict(type='mmpretrain.torchvision/Grayscale'),
    dict(type='mmpretrain.torchvision/RandomAutocontrast', p=1.0),
    dict(type='mmpretrain.PILToNumpy'),
]
# No flips: a mirrored digit is not the same digit.
train_pipeline = [
    *to_grey,
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
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
