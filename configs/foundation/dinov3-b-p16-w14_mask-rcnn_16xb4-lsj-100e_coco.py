# COCO instance segmentation with Mask R-CNN on DINOv3-B, fine-tuned with windows.
# python tools/train.py configs/foundation/dinov3-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py
_base_ = [
    '../_base_/models/mask-rcnn_dinov3-b-p16-w14_sfp.py',
    '../_base_/datasets/coco_instance_lsj-1024.py',
    '../_base_/schedules/coco_lsj_100e.py',
    '../_base_/runtime_mmdet_coco_iters.py',
]
