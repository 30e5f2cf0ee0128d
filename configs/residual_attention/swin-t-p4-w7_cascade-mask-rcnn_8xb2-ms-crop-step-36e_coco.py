# COCO instance segmentation with Cascade Mask R-CNN on Swin-T, with the steps of Swin's detectors: the learning rate is
# divided by 10 after 27 and 33 epochs.
# python tools/train.py configs/residual_attention/swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-step-36e_coco.py
# Differs from swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py in: param_scheduler.
_base_ = 'swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py'
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', milestones=[27, 33], gamma=0.1, by_epoch=True, begin=0, end=36),
]
