# UPerNet on DeiT-Ti, without stochastic depth, like XCiT's tiny model with 12 blocks.
_base_ = 'upernet_deit-s-p16.py'
model = dict(
    backbone=dict(
        arch='deit-t', drop_path_rate=0.0, init_cfg=dict(checkpoint='checkpoints/deit_tiny_patch16_224-a1311bcf.pth')
    ),
    neck=dict(embed_dim=192),
    decode_head=dict(in_channels=[192, 192, 192, 192]),
    auxiliary_head=dict(in_channels=192),
)
