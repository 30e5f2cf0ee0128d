# T2T-ViT-7: tokens by Performers, then 7 blocks of width 256 with 4 heads and MLPs of twice the width; a class token.
_base_ = 'classifier.py'
model = dict(
    backbone=dict(
        type='vitplug.T2T_ViT',
        img_size=224,
        embed_dims=256,
        num_layers=7,
        drop_path_rate=0.1,
        t2t_cfg=dict(use_performer=True),
        layer_cfgs=dict(num_heads=4, feedforward_channels=512),
    ),
    head=dict(in_channels=256),
)
