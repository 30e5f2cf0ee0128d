# Batch norm and a 1 x 1 convolution on the normalised last map of a DINOv2-S that keeps its weights.
_base_ = 'dinov2-s-p14.py'
model = dict(
    backbone=dict(frozen='host'),
    decode_head=dict(
        type='vitplug.LinearSegHead',
        in_channels=[384],
        dropout_ratio=0.1,
        num_classes=11,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss'),
    ),
)
