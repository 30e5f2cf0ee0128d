# ImageNet-1k classification with ViT-B (R) and a Gaussian attention bias.
# The paper's figures: top-1 81.484 (Table 2).
# python tools/train.py configs/gaussian_bias/vit-relpos-b-p16-gab_8xb288-400e_in1k.py
_base_ = 'vit-relpos-b-p16_8xb288-400e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='RelPosMlp'), dict(type='GaussianAttentionBias')]))
