# COCO instance segmentation with Mask R-CNN on frozen DINOv3-B features.
# python tools/train.py configs/foundation/dinov3-b-p16_mask-rcnn_16xb4-frozen-lsj-100e_coco.py
_base_ = ['../_base_/vitdet.py', '../_base_/models/dinov3-b-p16.py']
# The whole image attends to itself, with class and storage tokens.
model = dict(
    backbone=dict(_base_.pop('dinov3'), _delete_=True, img_size=1024, out_type='featmap', frozen='host'),
)
