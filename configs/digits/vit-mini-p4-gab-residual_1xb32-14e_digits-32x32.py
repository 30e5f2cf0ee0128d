# Digit classification with a small ViT, a Gaussian attention bias and residual attention.
# python tools/train.py configs/digits/vit-mini-p4-gab-residual_1xb32-14e_digits-32x32.py
_base_ = 'vit-mini-p4_1xb32-14e_digits-32x32.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias'), dict(type='ResidualAttention')]))
