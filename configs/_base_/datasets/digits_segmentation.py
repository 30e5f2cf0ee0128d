# Scenes of 3 to 7 handwritten digits with label maps, in ADE20K's format.
_base_ = '../loaders.py'
data_root = '{{$VITPLUG_DIGITS:data/digits}}/ade'
data_help = dict(root=data_root, command='python tools/dataset_converters/make_digit_scenes.py')
metainfo = dict(
    classes=('background', *'0123456789'),
    palette=[
        (0, 0, 0), (230, 60, 50), (250, 150, 30), (250, 220, 60), (150, 210, 70), (40, 150, 80),
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
    dict(type='LoadAnnotations'),
]
# No flips: a mirrored digit is not the same digit.
train_pipeline = [*to_grey, dict(type='RandomCrop', crop_size=(128, 128)), dict(type='PackSegInputs')]
test_pipeline = [*to_grey, dict(type='PackSegInputs')]
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    dataset=dict(
        type='BaseSegDataset',
        data_root=data_root,
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        img_suffix='.png',
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
# One image per batch: images are tested at their original, often non-square, size.
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    dataset=dict(
        train_dataloader['dataset'],
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
