# Stanford Dogs classification with ViT-S (R) and a Gaussian attention bias.
# The paper's figures: top-1 82.507 (Table 3); validation top-1 83.188, mean A 1.949 and sigma 4.979 after training
# (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16-gab_1xb128-200e_dogs.py
_base_ = 'vit-relpos-s-p16_1xb128-200e_dogs.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
