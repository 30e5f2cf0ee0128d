# A T2T-ViT of 4 layers and width 96 with 4 x 4 tokens, made of tokens of width 32 by Performers. Layers are initialised
# by torch's default: with a few thousand images this learns several times faster.
_base_ = 'mini_classifier.py'
model = dict(
    backbone=dict(
        type='vitplug.T2T_ViT',
        img_size=64,
        in_channels=1,
        embed_dims=96,
        num_layers=4,
        t2t_cfg=dict(token_dims=32, use_performer=True, performer_drop_rate=0.0),
        layer_cfgs=dict(num_heads=4, feedforward_channels=192),
        out_type='raw',
        with_cls_token=False,
        init_cfg=None,
    ),
    neck=dict(in_channels=96 * 4 * 4),
)
