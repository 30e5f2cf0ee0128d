# Stanford Cars classification with ViT-S (R) and a Gaussian attention bias.
# The paper's figures: top-1 83.079 (Table 3); validation top-1 84.205, mean A 2.334 and sigma 4.839 after training
# (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16-gab_1xb128-200e_cars.py
_base_ = 'vit-relpos-s-p16_1xb128-200e_cars.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
