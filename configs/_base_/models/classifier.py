# A classifier of a class token, for ImageNet-1k from scratch: label smoothing, Mixup and CutMix as in DeiT.
model = dict(
    type='ImageClassifier',
    neck=None,
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
