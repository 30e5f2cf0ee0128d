# COCO instance segmentation with Cascade Mask R-CNN on Swin-T.
# python tools/train.py configs/residual_attention/swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py
_base_ = [
    '../_base_/models/cascade-mask-rcnn_swin-t-p4-w7_fpn.py',
    '../_base_/datasets/coco_instance_ms-crop.py',
    '../_base_/schedules/coco_reswin_3x.py',
    '../_base_/runtime_mmdet_coco.py',
]
