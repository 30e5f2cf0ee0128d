# ImageNet-1k classification with DeiT-S and axial rotary positions.
# python tools/train.py configs/further/deit-s-p16-rope_8xb128-300e_in1k.py
_base_ = 'deit-s-p16_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='RotaryPosition')]))
