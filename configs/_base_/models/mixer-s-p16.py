# Mixer-S/16: 8 blocks of width 512, MLPs of width 256 over the tokens and 2048 over the channels. The head is
# initialised with zeros, as in the authors' code and in timm, whose norms have eps=1e-6.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.MlpMixer',
        arch='s',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1,
        norm_cfg=dict(type='LN', eps=1e-6),
    ),
    neck=dict(type='GlobalAveragePooling', dim=1),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=512,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='Constant', layer='Linear', val=0.0),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
