# Digit instance segmentation with Mask R-CNN on a small MViTv2.
# python tools/train.py configs/digits/mvit-mini_mask-rcnn_1xb8-400i_digits-128x128.py
_base_ = [
    '../_base_/models/mask-rcnn_mvit-mini_fpn.py',
    '../_base_/datasets/digits_detection.py',
    '../_base_/schedules/cosine_400i.py',
    '../_base_/default_runtime_mmdet.py',
]
