# COCO instance segmentation with Mask R-CNN on MViTv2-T and residual attention, ReMViTv2-T, from weights of the host
# without the plug.
# python tools/train.py configs/residual_attention/mvitv2-t-residual_mask-rcnn_16xb4-ms-crop-host-36e_coco.py
# Differs from mvitv2-t-residual_mask-rcnn_16xb4-ms-crop-36e_coco.py in: model.backbone.init_cfg.checkpoint.
_base_ = 'mvitv2-t-residual_mask-rcnn_16xb4-ms-crop-36e_coco.py'
model = dict(backbone=dict(init_cfg=dict(checkpoint='checkpoints/MViTv2_T_in1k.pyth')))
