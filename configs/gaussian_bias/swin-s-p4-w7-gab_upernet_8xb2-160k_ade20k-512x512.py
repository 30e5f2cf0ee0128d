# ADE20K segmentation with UPerNet on Swin-S and a Gaussian attention bias.
# The paper's figures: mIoU 46.41, aAcc 82.09 (Table 4).
# python tools/train.py configs/gaussian_bias/swin-s-p4-w7-gab_upernet_8xb2-160k_ade20k-512x512.py
_base_ = 'swin-s-p4-w7_upernet_8xb2-160k_ade20k-512x512.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))
