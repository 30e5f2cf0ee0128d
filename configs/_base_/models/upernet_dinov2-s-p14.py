# UPerNet on the maps after blocks 3, 6, 9 and 12 of a DINOv2-S that is fine-tuned.
_base_ = 'dinov2-s-p14.py'
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    backbone=dict(out_indices=[2, 5, 8, 11], final_norm=False, drop_path_rate=0.1),
    neck=dict(type='Feature2Pyramid', embed_dim=384, rescales=[4, 2, 1, 0.5], norm_cfg=norm_cfg),
    decode_head=dict(
        type='UPerHead',
        in_index=[0, 1, 2, 3],
        in_channels=[384, 384, 384, 384],
        pool_scales=(1, 2, 3, 6),
        channels=64,
        dropout_ratio=0.1,
        num_classes=11,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss'),
    ),
)
