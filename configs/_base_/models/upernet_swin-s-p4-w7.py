# UPerNet on Swin-S, with an auxiliary head on the third map.
_base_ = ['upernet.py', 'swin-s-p4-w7_dense.py']
model = dict(
    backbone=dict(_base_.pop('swin'), drop_path_rate=0.3),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(
        type='FCNHead',
        in_channels=384,
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=_base_.norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4),
    ),
)
