# ViT-B with the convolutional stem: 12 blocks, width 768, 12 heads, MLPs four times as wide.
_base_ = 'convstem-vit-s-p16.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072), drop_path_rate=0.1
    ),
    head=dict(in_channels=768),
)
