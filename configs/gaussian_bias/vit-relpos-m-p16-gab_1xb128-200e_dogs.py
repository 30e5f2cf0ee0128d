# Stanford Dogs classification with ViT-M (R) and a Gaussian attention bias.
# The paper's figures: top-1 85.714 (Table 3); mean A 1.937 and sigma 4.988 after training (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-m-p16-gab_1xb128-200e_dogs.py
_base_ = 'vit-relpos-m-p16_1xb128-200e_dogs.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
