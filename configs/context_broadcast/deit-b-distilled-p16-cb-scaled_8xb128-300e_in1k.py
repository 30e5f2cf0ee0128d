# ImageNet-1k classification with a distilled DeiT-B and scaled Context Broadcasting, CB_S.
# The paper's figures: top-1 83.6, top-5 96.5; ImageNet-V2 top-1 73.4; ImageNet-ReaL top-1 88.3 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-distilled-p16-cb-scaled_8xb128-300e_in1k.py
_base_ = 'deit-b-distilled-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True)]))
