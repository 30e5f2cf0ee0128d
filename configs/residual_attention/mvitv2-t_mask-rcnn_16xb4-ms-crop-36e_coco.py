# COCO instance segmentation with Mask R-CNN on MViTv2-T.
# python tools/train.py configs/residual_attention/mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py
_base_ = [
    '../_base_/models/mask-rcnn_mvitv2-t_fpn.py',
    '../_base_/datasets/coco_instance_ms-crop_bs4.py',
    '../_base_/schedules/coco_remvit_3x.py',
    '../_base_/runtime_mmdet_coco.py',
]
