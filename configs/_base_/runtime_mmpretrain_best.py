# Trainings that keep the checkpoint of the best validation accuracy, for a test afterwards.
_base_ = 'default_runtime_mmpretrain.py'
default_hooks = dict(checkpoint=dict(save_best='accuracy/top1'))
