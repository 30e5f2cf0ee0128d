# COCO instance segmentation with Mask R-CNN on MViTv2-T and residual attention, ReMViTv2-T, without windows.
# python tools/train.py configs/residual_attention/mvitv2-t-residual-global_mask-rcnn_16xb4-ms-crop-36e_coco.py
# Pre-trained by: python tools/train.py configs/residual_attention/mvitv2-t-residual_8xb256-300e_in1k.py
_base_ = 'mvitv2-t-global_mask-rcnn_16xb4-ms-crop-36e_coco.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='ResidualAttention')],
        init_cfg=dict(checkpoint='work_dirs/mvitv2-t-residual_8xb256-300e_in1k/epoch_300.pth'),
    )
)
