# COCO instance segmentation with Mask R-CNN on a plain ViT-B.
# python tools/train.py configs/vitdet/vit-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py
_base_ = '../_base_/vitdet.py'
