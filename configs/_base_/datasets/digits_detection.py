# Scenes of 3 to 7 handwritten digits with boxes and masks, in COCO's format.
_base_ = ['mmdet::_base_/datasets/coco_instance.py', 'digit_scenes.py']
data_root = f'{_base_.pop("digits_root")}/coco'
data_help = dict(root=data_root)
metainfo, to_grey = _base_.metainfo, _base_.to_grey
# No flips: a mirrored digit is not the same digit.
train_pipeline = [
    *to_grey,
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    *to_grey,
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    *_base_.test_pipeline[-2:],  # the annotations, at the original size
]
train_dataloader = dict(
    batch_size=8,
    sampler=dict(type='InfiniteSampler'),
    batch_sampler=None,
    dataset=dict(
        data_root=data_root,
        ann_file='annotations/instances_train.json',
        data_prefix=dict(img='train/'),
        filter_cfg=dict(min_size=0),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=4,
    dataset=dict(
        data_root=data_root,
        ann_file='annotations/instances_val.json',
        data_prefix=dict(img='val/'),
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=f'{data_root}/annotations/instances_val.json')
test_evaluator = val_evaluator
