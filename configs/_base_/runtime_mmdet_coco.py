# Trainings with a schedule in epochs. Batch norms are synchronised between processes.
_base_ = 'default_runtime_mmdet.py'
default_hooks = dict(logger=dict(interval=50, log_metric_by_epoch=True), checkpoint=dict(by_epoch=True, interval=1))
log_processor = dict(by_epoch=True)
sync_bn = 'torch'
