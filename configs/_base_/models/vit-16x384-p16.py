# A deep and narrow ViT: 16 blocks, width 384, 12 heads, MLPs three times as wide.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=384, num_layers=16, num_heads=12, feedforward_channels=1152),
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1,
        layer_cfgs=dict(init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0)),
    ),
    neck=None,
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        in_channels=384,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
    init_cfg=[
        dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
        dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
    ],
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]),
)
