# UPerNet on DeiT-B. XCiT has no model of this size; stochastic depth is that of DeiT.
_base_ = 'upernet_deit-s-p16.py'
model = dict(
    backbone=dict(
        arch='deit-b', drop_path_rate=0.1, init_cfg=dict(checkpoint='checkpoints/deit_base_patch16_224-b5f2ef4d.pth')
    ),
    neck=dict(embed_dim=768),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
    auxiliary_head=dict(in_channels=768),
)
