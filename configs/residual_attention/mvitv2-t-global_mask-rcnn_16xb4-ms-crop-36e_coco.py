# COCO instance segmentation with Mask R-CNN on MViTv2-T without windows.
# python tools/train.py configs/residual_attention/mvitv2-t-global_mask-rcnn_16xb4-ms-crop-36e_coco.py
# Differs from mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py in: model.backbone.window_size,
# model.backbone.shows_padding.
_base_ = 'mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py'
model = dict(backbone=dict(window_size=None, shows_padding=False))
