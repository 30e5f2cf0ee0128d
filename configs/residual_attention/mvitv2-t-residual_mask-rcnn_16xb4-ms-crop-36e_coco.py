# COCO instance segmentation with Mask R-CNN on MViTv2-T and residual attention, ReMViTv2-T.
# python tools/train.py configs/residual_attention/mvitv2-t-residual_mask-rcnn_16xb4-ms-crop-36e_coco.py
# Pre-trained by: python tools/train.py configs/residual_attention/mvitv2-t-residual_8xb256-300e_in1k.py
_base_ = 'mvitv2-t_mask-rcnn_16xb4-ms-crop-36e_coco.py'
# Scores pass from windows to windows, and from global attention to global attention.
model = dict(
    backbone=dict(
        plugs=[dict(type='ResidualAttention', window_align='parity')],
        init_cfg=dict(checkpoint='work_dirs/mvitv2-t-residual_8xb256-300e_in1k/epoch_300.pth'),
    )
)
