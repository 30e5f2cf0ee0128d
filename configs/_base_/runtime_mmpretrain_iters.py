# Trainings with a schedule in iterations, of a few thousand iterations.
_base_ = 'default_runtime_mmpretrain.py'
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
