# UPerNet on frozen DINOv3-B/16 features: the maps after blocks 3, 6, 9 and 12 become a pyramid.
_base_ = 'linear_dinov3-b-p16.py'
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    backbone=dict(out_indices=[2, 5, 8, 11], final_norm=False),
    neck=dict(type='Feature2Pyramid', embed_dim=768, rescales=[4, 2, 1, 0.5], norm_cfg=norm_cfg),
    decode_head=dict(
        _delete_=True,
        type='UPerHead',
        in_channels=[768, 768, 768, 768],
        in_index=[0, 1, 2, 3],
        pool_scales=(1, 2, 3, 6),
        channels=512,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
)
