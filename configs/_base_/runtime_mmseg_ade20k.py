# Trainings of 40k or 160k iterations. Batch norms are synchronised between processes.
_base_ = 'default_runtime_mmseg.py'
default_hooks = dict(logger=dict(interval=50), checkpoint=dict(interval=16000))
sync_bn = 'torch'
