# ImageNet-1k classification with a distilled DeiT-Ti and scaled Context Broadcasting, CB_S.
# The paper's figures: top-1 75.3, top-5 92.5; ImageNet-V2 top-1 63.4; ImageNet-ReaL top-1 82.8 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-distilled-p16-cb-scaled_8xb128-300e_in1k.py
_base_ = 'deit-ti-distilled-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True)]))
