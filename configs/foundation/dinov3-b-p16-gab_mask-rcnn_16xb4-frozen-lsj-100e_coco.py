# COCO instance segmentation with Mask R-CNN on frozen DINOv3-B features, and a Gaussian attention bias that learns.
# python tools/train.py configs/foundation/dinov3-b-p16-gab_mask-rcnn_16xb4-frozen-lsj-100e_coco.py
_base_ = 'dinov3-b-p16_mask-rcnn_16xb4-frozen-lsj-100e_coco.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))
