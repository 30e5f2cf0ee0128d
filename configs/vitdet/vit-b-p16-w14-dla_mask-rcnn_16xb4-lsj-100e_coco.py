# COCO instance segmentation with Mask R-CNN on a plain ViT-B and distributed local attention in the blocks with
# windows.
# python tools/train.py configs/vitdet/vit-b-p16-w14-dla_mask-rcnn_16xb4-lsj-100e_coco.py
_base_ = 'vit-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', expansion=0, layers=[0, 1, 3, 4, 6, 7, 9, 10])]))
