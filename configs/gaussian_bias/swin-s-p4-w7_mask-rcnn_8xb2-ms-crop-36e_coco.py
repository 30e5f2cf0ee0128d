# COCO instance segmentation with Mask R-CNN on Swin-S in mixed precision (float16), as the supplement says.
# The paper's figures: box AP 48.12, mask AP 43.03 (Table 4).
# python tools/train.py configs/gaussian_bias/swin-s-p4-w7_mask-rcnn_8xb2-ms-crop-36e_coco.py
_base_ = [
    '../_base_/models/mask-rcnn_swin-s-p4-w7_fpn.py',
    '../_base_/datasets/coco_instance_ms-crop.py',
    '../_base_/schedules/coco_3x.py',
    '../_base_/runtime_mmdet_coco.py',
]
optim_wrapper = dict(type='AmpOptimWrapper')
