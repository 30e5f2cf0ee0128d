# Digit instance segmentation with Mask R-CNN on a small Swin, a Gaussian attention bias and residual attention.
# python tools/train.py configs/digits/swin-mini-p4-w4-gab-residual_mask-rcnn_1xb8-400i_digits-128x128.py
_base_ = 'swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias'), dict(type='ResidualAttention')]))
