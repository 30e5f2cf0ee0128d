# ImageNet-1k classification with DeiT-B and Context Broadcasting.
# The paper's figures: top-1 82.0.
# python tools/train.py configs/context_broadcast/deit-b-p16-cb_8xb128-300e_in1k.py
_base_ = 'deit-b-p16_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
