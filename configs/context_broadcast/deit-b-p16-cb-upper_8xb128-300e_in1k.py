# ImageNet-1k classification with DeiT-B and Context Broadcasting in the upper half of its blocks.
# The paper's figures: top-1 82.1 (Table 9).
# python tools/train.py configs/context_broadcast/deit-b-p16-cb-upper_8xb128-300e_in1k.py
_base_ = 'deit-b-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', layers='upper')]))
