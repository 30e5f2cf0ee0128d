# Garment instance segmentation with Mask R-CNN on a small Swin Transformer.
# python tools/train.py configs/fashion/swin-mini-p4-w4_mask-rcnn_1xb8-400i_garments-128x128.py
_base_ = [
    '../_base_/models/mask-rcnn_swin-mini_fpn.py',
    '../_base_/datasets/garments_detection.py',
    '../_base_/schedules/cosine_400i.py',
    '../_base_/default_runtime_mmdet.py',
]
