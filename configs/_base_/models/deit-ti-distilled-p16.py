# DeiT-Ti with a distillation token.
_base_ = 'deit-s-distilled-p16.py'
model = dict(backbone=dict(arch='deit-t'), head=dict(in_channels=192))
