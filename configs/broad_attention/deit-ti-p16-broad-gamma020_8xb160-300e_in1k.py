# ImageNet-1k classification with DeiT-Ti and broad attention with gamma 0.2.
# The paper's figures: top-1 74.3 (Table I).
# python tools/train.py configs/broad_attention/deit-ti-p16-broad-gamma020_8xb160-300e_in1k.py
_base_ = 'deit-ti-p16_8xb160-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention', gamma=0.2)]))
