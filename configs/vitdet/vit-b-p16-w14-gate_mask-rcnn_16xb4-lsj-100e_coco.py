# COCO instance segmentation with Mask R-CNN on a plain ViT-B and gated attention.
# python tools/train.py configs/vitdet/vit-b-p16-w14-gate_mask-rcnn_16xb4-lsj-100e_coco.py
_base_ = 'vit-b-p16-w14_mask-rcnn_16xb4-lsj-100e_coco.py'
model = dict(backbone=dict(plugs=[dict(type='GatedAttention')]))
