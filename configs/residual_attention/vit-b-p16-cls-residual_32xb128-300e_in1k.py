# ImageNet-1k classification with ViT-B with a class token and residual attention.
# python tools/train.py configs/residual_attention/vit-b-p16-cls-residual_32xb128-300e_in1k.py
_base_ = 'vit-b-p16-cls_32xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
