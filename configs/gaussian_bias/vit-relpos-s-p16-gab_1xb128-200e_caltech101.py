# Caltech-101 classification with ViT-S (R) and a Gaussian attention bias.
# The paper's figures: top-1 90.202 (Table 3); validation top-1 91.296, mean A 1.946 and sigma 5.012 after training
# (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16-gab_1xb128-200e_caltech101.py
_base_ = 'vit-relpos-s-p16_1xb128-200e_caltech101.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
