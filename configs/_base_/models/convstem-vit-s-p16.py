# The host of Refined-ViT-S: convolutional stem, 16 blocks, width 384, 12 heads, MLPs three times as wide. In the
# advanced recipe (the paper's Table 8) the rate of stochastic depth is 0.1 x blocks / 12, also for M and L.
_base_ = 'deit-s-p16.py'
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=384, num_layers=16, num_heads=12, feedforward_channels=1152),
        drop_path_rate=0.1 * 16 / 12,
        stem='conv',
    )
)
