# T2T-ViT-7 for ImageNet-1k: tokens by Performers, then 7 blocks of width 256 with 4 heads and MLPs of twice the width;
# a class token; label smoothing, Mixup and CutMix as in DeiT.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.T2T_ViT',
        img_size=224,
        embed_dims=256,
        num_layers=7,
        drop_path_rate=0.1,
        t2t_cfg=dict(use_performer=True),
        layer_cfgs=dict(num_heads=4, feedforward_channels=512),
    ),
    neck=None,
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        in_channels=256,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
