# DeiT-S for ImageNet-1k from scratch: 12 blocks, width 384, 6 heads, a class token; label smoothing, Mixup and CutMix.
# Linear layers are initialised as in DeiT; mmpretrain's defaults differ for MLPs (Xavier) and heads (zeros).
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch='deit-s',
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
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
