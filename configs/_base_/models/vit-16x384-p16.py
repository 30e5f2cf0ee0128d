# A deep and narrow ViT: 16 blocks, width 384, 12 heads, MLPs three times as wide.
_base_ = 'deit-s-p16.py'
model = dict(
    backbone=dict(arch=dict(_delete_=True, embed_dims=384, num_layers=16, num_heads=12, feedforward_channels=1152)),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]),
)
