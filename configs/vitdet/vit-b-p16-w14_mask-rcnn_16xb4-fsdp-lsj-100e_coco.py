# COCO instance segmentation with Mask R-CNN on a plain ViT-B in bfloat16, with parameters sharded over the processes
# (FSDP2).
# python tools/train.py configs/vitdet/vit-b-p16-w14_mask-rcnn_16xb4-fsdp-lsj-100e_coco.py
_base_ = 'vit-b-p16-w14_mask-rcnn_16xb4-amp-lsj-100e_coco.py'
strategy = dict(type='vitplug.FSDP2Strategy')
