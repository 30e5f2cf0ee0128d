# ADE20K segmentation with UPerNet on DeiT-Ti.
# The paper's figures: mIoU 38.9 (Table 7).
# python tools/train.py configs/context_broadcast/deit-ti-p16_upernet_8xb2-160k_ade20k-512x512.py
_base_ = '../_base_/models/upernet_deit.py'
# Without stochastic depth, like XCiT's tiny model with 12 blocks.
model = dict(
    backbone=dict(
        arch='deit-t', drop_path_rate=0.0, init_cfg=dict(checkpoint='checkpoints/deit_tiny_patch16_224-a1311bcf.pth')
    ),
    neck=dict(embed_dim=192),
    decode_head=dict(in_channels=[192, 192, 192, 192]),
    auxiliary_head=dict(in_channels=192),
)
