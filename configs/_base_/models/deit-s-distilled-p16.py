# DeiT-S with a distillation token and a convolutional teacher (hard labels). Linear layers are initialised as in DeiT.
model = dict(
    type='vitplug.DistilledClassifier',
    backbone=dict(
        type='vitplug.DistilledVisionTransformer',
        arch='deit-s',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1,
        layer_cfgs=dict(init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0)),
    ),
    neck=None,
    head=dict(
        type='DeiTClsHead',
        num_classes=1000,
        in_channels=384,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
    teacher=dict(type='TimmClassifier', model_name='regnety_160', loss=dict(type='CrossEntropyLoss')),
    teacher_checkpoint='checkpoints/regnety_160-a5fe301d.pth',
    init_cfg=[
        dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
        dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
    ],
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
