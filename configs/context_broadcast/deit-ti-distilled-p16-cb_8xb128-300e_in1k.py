# ImageNet-1k classification with a distilled DeiT-Ti and Context Broadcasting.
# The paper's figures: top-1 74.7.
# python tools/train.py configs/context_broadcast/deit-ti-distilled-p16-cb_8xb128-300e_in1k.py
_base_ = 'deit-ti-distilled-p16_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
