# ImageNet-1k classification with a linear head on frozen DINOv3-B, and a Gaussian attention bias that learns.
# python tools/train.py configs/foundation/dinov3-b-p16-gab_linear_8xb128-12500i_in1k.py
_base_ = 'dinov3-b-p16_linear_8xb128-12500i_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))
