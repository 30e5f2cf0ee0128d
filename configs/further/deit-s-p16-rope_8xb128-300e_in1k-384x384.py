# ImageNet-1k classification with DeiT-S and axial rotary positions, tested at 384 x 384.
# python tools/train.py configs/further/deit-s-p16-rope_8xb128-300e_in1k-384x384.py
_base_ = 'deit-s-p16_8xb128-300e_in1k-384x384.py'
model = dict(backbone=dict(plugs=[dict(type='RotaryPosition')]))
