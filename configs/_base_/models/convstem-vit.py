# The host of Refined-ViT-S for ImageNet-1k from scratch: convolutional stem, 16 blocks, width 384, 12 heads, MLPs three
# times as wide. In the advanced recipe (the paper's Table 8) the rate of stochastic depth is 0.1 x blocks / 12, also
# for M and L. Label smoothing, Mixup, CutMix and initialisation are DeiT's.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=384, num_layers=16, num_heads=12, feedforward_channels=1152),
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1 * 16 / 12,
        stem='conv',
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
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
