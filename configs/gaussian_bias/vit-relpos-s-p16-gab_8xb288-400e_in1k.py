# ImageNet-1k classification with ViT-S (R) and a Gaussian attention bias.
# The paper's figures: top-1 80.724 (Table 2).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16-gab_8xb288-400e_in1k.py
_base_ = 'vit-relpos-s-p16_8xb288-400e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
