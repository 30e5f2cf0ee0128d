# COCO instance segmentation with Cascade Mask R-CNN on Swin-T and residual attention, ReSwin-T, with the steps of
# Swin's detectors.
# python tools/train.py configs/residual_attention/swin-t-p4-w7-residual_cascade-mask-rcnn_8xb2-ms-crop-step-36e_coco.py
_base_ = 'swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-step-36e_coco.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
