# COCO instance segmentation with Mask R-CNN on MViTv2-T, with the steps of MViTv2's detectors: the learning rate is
# divided by 10 after 28 and 33 epochs.
# python tools/train.py configs/residual_attention/mvitv2-t_mask-rcnn_16xb4-ms-crop-step-36e_coco.py
# Differs from mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py in: param_scheduler.
_base_ = 'mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py'
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=250),
    dict(type='MultiStepLR', milestones=[28, 33], gamma=0.1, by_epoch=True, begin=0, end=36),
]
