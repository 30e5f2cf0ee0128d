# ImageNet-1k classification with DeiT-S and mixed rotary positions.
# The paper's figures: top-1 80.9, DeiT-III-S of 400 epochs.
# python tools/train.py configs/further/deit-s-p16-rope-mixed_8xb128-300e_in1k.py
_base_ = 'deit-s-p16_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='RotaryPosition', mode='mixed')]))
