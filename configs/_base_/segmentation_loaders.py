# The loaders and the metric of segmentors. Tests take one image per batch: images keep their size, often not square.
_base_ = 'loaders.py'
val_dataloader = dict(batch_size=1)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
