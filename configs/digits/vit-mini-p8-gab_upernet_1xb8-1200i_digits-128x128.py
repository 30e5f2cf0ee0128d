# Digit segmentation with UPerNet on a small ViT and a Gaussian attention bias.
# python tools/train.py configs/digits/vit-mini-p8-gab_upernet_1xb8-1200i_digits-128x128.py
_base_ = 'vit-mini-p8_upernet_1xb8-1200i_digits-128x128.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))
