# Digit instance segmentation with Mask R-CNN on a small Swin Transformer V2 and a Gaussian attention bias.
# python tools/train.py configs/digits/swinv2-mini-p4-w4-gab_mask-rcnn_1xb8-400i_digits-128x128.py
_base_ = 'swinv2-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))
