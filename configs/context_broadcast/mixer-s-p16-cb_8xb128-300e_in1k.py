# ImageNet-1k classification with Mixer-S/16 and Context Broadcasting.
# The paper's figures: top-1 74.9 (Table 11).
# python tools/train.py configs/context_broadcast/mixer-s-p16-cb_8xb128-300e_in1k.py
_base_ = 'mixer-s-p16_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast')]))
