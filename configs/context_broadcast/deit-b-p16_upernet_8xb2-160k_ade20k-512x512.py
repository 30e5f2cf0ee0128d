# ADE20K segmentation with UPerNet on DeiT-B.
# The paper's figures: mIoU 45.0 (Table 7).
# python tools/train.py configs/context_broadcast/deit-b-p16_upernet_8xb2-160k_ade20k-512x512.py
_base_ = '../_base_/models/upernet_deit.py'
# Stochastic depth is that of XCiT-M24, whose size is nearest.
model = dict(
    backbone=dict(
        arch='deit-b', drop_path_rate=0.15, init_cfg=dict(checkpoint='checkpoints/deit_base_patch16_224-b5f2ef4d.pth')
    ),
    neck=dict(embed_dim=768),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
    auxiliary_head=dict(in_channels=768),
)
