# Scenes of 3 to 7 handwritten digits with label maps, in ADE20K's format.
_base_ = 'digit_scenes.py'
data_root = f'{_base_.pop("digits_root")}/ade'
data_help = dict(root=data_root)
metainfo = dict(
    classes=('background', *_base_.metainfo.classes),
    palette=[(0, 0, 0), *_base_.metainfo.palette],
)
to_grey = [*_base_.to_grey, dict(type='LoadAnnotations')]
# No flips: a mirrored digit is not the same digit.
train_pipeline = [*to_grey, dict(type='RandomCrop', crop_size=(128, 128)), dict(type='PackSegInputs')]
test_pipeline = [*to_grey, dict(type='PackSegInputs')]
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='BaseSegDataset',
        img_suffix='.png',
        data_root=data_root,
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        train_dataloader['dataset'],
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
# Tests take one image per batch: images keep their size, often not square.
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
