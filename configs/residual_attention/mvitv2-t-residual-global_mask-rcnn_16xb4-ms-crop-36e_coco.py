# COCO instance segmentation with Mask R-CNN on MViTv2-T and residual attention, ReMViTv2-T, without windows.
# python tools/train.py configs/residual_attention/mvitv2-t-residual-global_mask-rcnn_16xb4-ms-crop-36e_coco.py
_base_ = 'mvitv2-t-global_mask-rcnn_16xb4-ms-crop-36e_coco.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
