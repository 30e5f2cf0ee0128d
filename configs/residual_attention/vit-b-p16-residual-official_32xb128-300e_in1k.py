# ImageNet-1k classification with ReViT-B as in its code: an alpha that may leave [0, 1].
# python tools/train.py configs/residual_attention/vit-b-p16-residual-official_32xb128-300e_in1k.py
_base_ = 'vit-b-p16_32xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention', constraint='none')]))
