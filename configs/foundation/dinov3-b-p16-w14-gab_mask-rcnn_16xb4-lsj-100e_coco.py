# COCO instance segmentation with Mask R-CNN on DINOv3-B, fine-tuned with windows and a Gaussian attention bias.
# python tools/train.py configs/foundation/dinov3-b-p16-w14-gab_mask-rcnn_16xb4-lsj-100e_coco.py
_base_ = 'dinov3-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAttentionBias')]))
