# COCO instance segmentation with Cascade Mask R-CNN on Swin-T and residual attention, ReSwin-T.
# python tools/train.py configs/residual_attention/swin-t-p4-w7-residual_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py
# Pre-trained by: python tools/train.py configs/residual_attention/swin-t-p4-w7-residual_8xb128-300e_in1k.py
_base_ = 'swin-t-p4-w7_cascade-mask-rcnn_8xb2-ms-crop-36e_coco.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='ResidualAttention')],
        init_cfg=dict(checkpoint='work_dirs/swin-t-p4-w7-residual_8xb128-300e_in1k/epoch_300.pth'),
    )
)
