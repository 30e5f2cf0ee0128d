# COCO instance segmentation with Mask R-CNN on frozen DINOv3-B features.
# python tools/train.py configs/foundation/dinov3-b-p16_mask-rcnn_16xb4-frozen-lsj-100e_coco.py
_base_ = [
    '../_base_/models/mask-rcnn_dinov3-b-p16_sfp.py',
    '../_base_/datasets/coco_instance_lsj-1024.py',
    '../_base_/schedules/coco_lsj_100e.py',
    '../_base_/runtime_mmdet_coco_iters.py',
]
