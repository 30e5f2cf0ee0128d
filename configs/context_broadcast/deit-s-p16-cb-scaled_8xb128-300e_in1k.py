# ImageNet-1k classification with DeiT-S and scaled Context Broadcasting, CB_S.
# The paper's figures: top-1 80.4, top-5 95.1; ImageNet-V2 top-1 68.7; ImageNet-ReaL top-1 85.9 (Table 6).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-scaled_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True)]))
