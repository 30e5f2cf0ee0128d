# The host of Refined-ViT-L: 32 blocks, width 512, 16 heads.
_base_ = 'convstem-vit-s-p16.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=512, num_layers=32, num_heads=16, feedforward_channels=1536), drop_path_rate=0.1 * 32 / 12
    ),
    head=dict(in_channels=512),
)
