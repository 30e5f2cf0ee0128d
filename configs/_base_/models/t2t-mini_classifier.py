# A T2T-ViT of 4 layers and width 96, tokens of width 32 by Performers. Its classifier gets all 4 x 4 tokens instead of
# their mean, and layers start as torch's: with a few thousand images this learns several times faster. It fixes the
# input size.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=10, mean=[127.5], std=[64.0]),
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
    neck=dict(
        type='LinearNeck', in_channels=96 * 4 * 4, out_channels=128, gap_dim=0, norm_cfg=None, act_cfg=dict(type='GELU')
    ),
    head=dict(type='LinearClsHead', num_classes=10, in_channels=128, loss=dict(type='CrossEntropyLoss')),
)
