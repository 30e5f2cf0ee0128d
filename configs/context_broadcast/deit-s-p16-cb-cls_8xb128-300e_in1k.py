# ImageNet-1k classification with DeiT-S and Context Broadcasting of the class token.
# The paper's figures: top-1 79.3 (Table 10).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-cls_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', mode='cls')]))
