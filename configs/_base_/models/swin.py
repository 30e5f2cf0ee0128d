# Swin-T for ImageNet-1k from scratch: blocks 2, 2, 6, 2 of width 96 to 768, windows of 7 x 7. The classifier gets the
# mean over the last map; label smoothing, Mixup and CutMix. Linear layers and norms are initialised as in DeiT.
model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitplug.SwinTransformer', arch='tiny', img_size=224, drop_path_rate=0.2),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=768,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
    init_cfg=[
        dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
        dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
    ],
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
