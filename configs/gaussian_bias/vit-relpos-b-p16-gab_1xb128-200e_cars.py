# Stanford Cars classification with ViT-B (R) and a Gaussian attention bias.
# The paper's figures: top-1 82.612 (Table 3); mean A 2.262 and sigma 4.846 after training (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-b-p16-gab_1xb128-200e_cars.py
_base_ = 'vit-relpos-b-p16_1xb128-200e_cars.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
