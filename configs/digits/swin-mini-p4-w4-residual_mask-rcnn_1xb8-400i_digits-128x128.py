# Digit instance segmentation with Mask R-CNN on a small Swin Transformer and residual attention.
# python tools/train.py configs/digits/swin-mini-p4-w4-residual_mask-rcnn_1xb8-400i_digits-128x128.py
_base_ = 'swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
