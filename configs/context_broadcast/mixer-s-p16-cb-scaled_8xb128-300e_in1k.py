# ImageNet-1k classification with Mixer-S/16 and scaled Context Broadcasting, CB_S.
# The paper's figures: none; the paper has CB alone on Mixer (Table 11).
# python tools/train.py configs/context_broadcast/mixer-s-p16-cb-scaled_8xb128-300e_in1k.py
_base_ = 'mixer-s-p16_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', scaled=True)]))
