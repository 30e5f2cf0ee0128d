# ImageNet-1k classification with DeiT-B and scaled Context Broadcasting, CB_S.
# The paper's figures: top-1 82.1, top-5 95.8; ImageNet-V2 top-1 71.1; ImageNet-ReaL top-1 86.9 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-p16-cb-scaled_8xb128-300e_in1k.py
_base_ = 'deit-b-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True)]))
