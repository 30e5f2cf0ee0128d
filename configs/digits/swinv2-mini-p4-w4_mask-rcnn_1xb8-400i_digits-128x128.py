# Digit instance segmentation with Mask R-CNN on a small Swin Transformer V2.
# python tools/train.py configs/digits/swinv2-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py
_base_ = 'swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
model = dict(backbone=dict(type='vitplug.SwinTransformerV2'))
