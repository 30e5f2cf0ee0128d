# DeiT-Ti: 12 blocks, width 192, 3 heads.
_base_ = 'deit-s-p16.py'
model = dict(
    backbone=dict(arch=dict(_delete_=True, embed_dims=192, num_layers=12, num_heads=3, feedforward_channels=768)),
    head=dict(in_channels=192),
)
