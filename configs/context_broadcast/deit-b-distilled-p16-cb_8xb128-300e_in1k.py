# ImageNet-1k classification with a distilled DeiT-B and Context Broadcasting.
# The paper's figures: top-1 83.5.
# python tools/train.py configs/context_broadcast/deit-b-distilled-p16-cb_8xb128-300e_in1k.py
_base_ = 'deit-b-distilled-p16_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
