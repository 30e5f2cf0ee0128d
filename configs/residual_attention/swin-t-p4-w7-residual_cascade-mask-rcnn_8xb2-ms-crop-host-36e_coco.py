# COCO instance segmentation with Cascade Mask R-CNN on Swin-T and residual attention, ReSwin-T, from weights of the
# host without the plug.
# python tools/train.py configs/residual_attention/swin-t-p4-w7-residual_cascade-mask-rcnn_8xb2-ms-crop-host-36e_coco.py
# Differs from swin-t-p4-w7-residual_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py in: model.backbone.init_cfg.checkpoint.
_base_ = 'swin-t-p4-w7-residual_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py'
model = dict(backbone=dict(init_cfg=dict(checkpoint='checkpoints/swin_tiny_patch4_window7_224.pth')))
