# Boxes and masks in COCO's format.
_base_ = 'loaders.py'
# Annotations are loaded after the resize: the evaluation needs them at the original size.
after_resize = [
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
train_dataloader = dict(dataset=dict(type='CocoDataset', filter_cfg=dict(filter_empty_gt=True)))
val_dataloader = dict(dataset=dict(type='CocoDataset', test_mode=True))
test_dataloader = val_dataloader
val_evaluator = dict(type='CocoMetric', metric=['bbox', 'segm'])
test_evaluator = val_evaluator
