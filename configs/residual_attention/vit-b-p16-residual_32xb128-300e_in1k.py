# ImageNet-1k classification with ViT-B and residual attention, ReViT-B.
# The paper's figures: top-1 82.4 (Table 2).
# python tools/train.py configs/residual_attention/vit-b-p16-residual_32xb128-300e_in1k.py
_base_ = 'vit-b-p16_32xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
