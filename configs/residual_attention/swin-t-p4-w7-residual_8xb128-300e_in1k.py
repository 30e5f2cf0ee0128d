# ImageNet-1k classification with Swin-T and residual attention, ReSwin-T.
# The paper's figures: top-1 81.5 (Table 2).
# python tools/train.py configs/residual_attention/swin-t-p4-w7-residual_8xb128-300e_in1k.py
_base_ = 'swin-t-p4-w7_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
