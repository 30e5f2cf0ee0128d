# Oxford-IIIT Pet classification with ViT-B (R) and a Gaussian attention bias.
# The paper's figures: top-1 93.743 (Table 3); mean A 1.940 and sigma 5.007 after training (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-b-p16-gab_1xb128-200e_pets.py
_base_ = 'vit-relpos-b-p16_1xb128-200e_pets.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
