# UPerNet on Swin-S, with an auxiliary head on the third map.
_base_ = 'upernet.py'
model = dict(
    backbone=dict(
        type='vitplug.SwinTransformer',
        arch='small',
        drop_path_rate=0.3,
        out_indices=(0, 1, 2, 3),
        pad_small_map=True,
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/swin_small_patch4_window7_224.pth'),
    ),
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
