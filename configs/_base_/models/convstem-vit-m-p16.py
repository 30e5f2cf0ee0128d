# The host of Refined-ViT-M: 32 blocks, width 420, 12 heads.
_base_ = 'convstem-vit-s-p16.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=420, num_layers=32, num_heads=12, feedforward_channels=1260), drop_path_rate=0.1 * 32 / 12
    ),
    head=dict(in_channels=420),
)
