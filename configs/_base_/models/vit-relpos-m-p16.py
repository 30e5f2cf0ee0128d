# ViT-M (R): 12 blocks, width 512, 8 heads.
_base_ = 'vit-relpos-s-p16.py'
model = dict(
    backbone=dict(arch=dict(embed_dims=512, num_layers=12, num_heads=8, feedforward_channels=2048)),
    head=dict(in_channels=512),
)
