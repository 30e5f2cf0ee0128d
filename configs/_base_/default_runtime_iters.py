# Checkpoints, validations and log lines are counted in iterations.
_base_ = 'default_runtime.py'
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=200))
log_processor = dict(by_epoch=False)
