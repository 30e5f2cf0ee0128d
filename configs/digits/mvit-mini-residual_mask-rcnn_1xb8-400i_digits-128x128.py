# Digit instance segmentation with Mask R-CNN on a small MViTv2 and residual attention.
# python tools/train.py configs/digits/mvit-mini-residual_mask-rcnn_1xb8-400i_digits-128x128.py
_base_ = 'mvit-mini_mask-rcnn_1xb8-400i_digits-128x128.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
