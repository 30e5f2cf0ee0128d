# Trainings with a schedule in iterations, of a few hundred thousand iterations.
_base_ = 'default_runtime_mmdet.py'
default_hooks = dict(logger=dict(interval=50), checkpoint=dict(interval=5000))
