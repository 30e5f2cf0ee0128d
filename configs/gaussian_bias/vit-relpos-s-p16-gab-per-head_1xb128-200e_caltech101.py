# Caltech-101 classification with ViT-S (R) and a Gaussian attention bias for every head.
# The paper's figures: top-1 90.591, validation top-1 91.126 (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16-gab-per-head_1xb128-200e_caltech101.py
_base_ = 'vit-relpos-s-p16_1xb128-200e_caltech101.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias', per_head=True)]))
