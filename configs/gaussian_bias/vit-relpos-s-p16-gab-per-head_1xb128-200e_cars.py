# Stanford Cars classification with ViT-S (R) and a Gaussian attention bias for every head.
# The paper's figures: top-1 82.928, validation top-1 84.411 (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16-gab-per-head_1xb128-200e_cars.py
_base_ = 'vit-relpos-s-p16_1xb128-200e_cars.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias', per_head=True)]))
