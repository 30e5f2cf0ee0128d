# Trainings that keep the epoch of the best validation accuracy, to be tested afterwards.
_base_ = 'default_runtime_mmpretrain.py'
default_hooks = dict(checkpoint=dict(save_best='accuracy/top1'))
