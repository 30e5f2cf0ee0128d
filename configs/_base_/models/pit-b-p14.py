# PiT-B: blocks 3, 6, 4 of width 256, 512, 1024, patches of 14 x 14 with stride 7. Linear layers are initialised by
# torch's default, as in the authors' code.
model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitplug.PoolingVisionTransformer', arch='b', img_size=224, drop_path_rate=0.1),
    neck=None,
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=1024,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=None,
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
