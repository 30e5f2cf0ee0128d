# Boxes and masks in COCO's format.
_base_ = 'loaders.py'
train_dataloader = dict(dataset=dict(type='CocoDataset', filter_cfg=dict(filter_empty_gt=True)))
val_dataloader = dict(dataset=dict(type='CocoDataset', test_mode=True))
test_dataloader = val_dataloader
val_evaluator = dict(type='CocoMetric', metric=['bbox', 'segm'])
test_evaluator = val_evaluator
