# DeiT-Ti: 12 blocks, width 192, 3 heads.
_base_ = 'deit-s-p16.py'
model = dict(backbone=dict(arch='deit-t'), head=dict(in_channels=192))
