# ImageNet-1k classification with DeiT-Ti and scaled Context Broadcasting, CB_S.
# The paper's figures: top-1 73.5, top-5 91.9; ImageNet-V2 top-1 61.4; ImageNet-ReaL top-1 81.2 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-p16-cb-scaled_8xb128-300e_in1k.py
_base_ = 'deit-ti-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True)]))
