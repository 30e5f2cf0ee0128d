# ADE20K segmentation with a linear head on frozen DINOv3-B features, and a Gaussian attention bias that learns.
# python tools/train.py configs/foundation/dinov3-b-p16-gab_linear_8xb2-40k_ade20k-512x512.py
_base_ = 'dinov3-b-p16_linear_8xb2-40k_ade20k-512x512.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))
