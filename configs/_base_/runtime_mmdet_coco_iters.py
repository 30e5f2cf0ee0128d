# Trainings counted in iterations, a few hundred thousand of them.
_base_ = 'default_runtime_mmdet.py'
default_hooks = dict(logger=dict(interval=50), checkpoint=dict(interval=5000))
