# ViT-B (R): 12 blocks, width 768, 12 heads.
_base_ = 'vit-relpos-s-p16.py'
model = dict(
    backbone=dict(arch=dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072)),
    head=dict(in_channels=768),
)
