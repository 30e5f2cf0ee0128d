# Stanford Cars classification with ViT-M (R) and a Gaussian attention bias.
# The paper's figures: top-1 83.890 (Table 3); mean A 2.316 and sigma 4.845 after training (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-m-p16-gab_1xb128-200e_cars.py
_base_ = 'vit-relpos-m-p16_1xb128-200e_cars.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
