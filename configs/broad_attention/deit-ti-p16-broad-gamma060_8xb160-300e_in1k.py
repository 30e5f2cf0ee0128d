# ImageNet-1k classification with DeiT-Ti and broad attention with gamma 0.6.
# The paper's figures: top-1 75.3 (Table I).
# python tools/train.py configs/broad_attention/deit-ti-p16-broad-gamma060_8xb160-300e_in1k.py
_base_ = 'deit-ti-p16_8xb160-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention', gamma=0.6)]))
