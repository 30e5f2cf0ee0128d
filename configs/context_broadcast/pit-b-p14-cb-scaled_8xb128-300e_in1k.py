# ImageNet-1k classification with PiT-B and scaled Context Broadcasting, CB_S.
# The paper's figures: top-1 82.2 (Table 11).
# python tools/train.py configs/context_broadcast/pit-b-p14-cb-scaled_8xb128-300e_in1k.py
_base_ = 'pit-b-p14_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True)]))
