# Swin-S: blocks 2, 2, 18, 2.
_base_ = 'swin-t-p4-w7.py'
model = dict(backbone=dict(arch='small', drop_path_rate=0.3))
