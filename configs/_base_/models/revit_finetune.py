# ViT-B without class token from DeiT-B's ImageNet-1k weights, without Mixup, label smoothing and stochastic depth. The
# classifier gets the mean of the normalised tokens; it is new, and starts from zero as in ViT's fine-tuning.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch='deit-b',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.0,
        with_cls_token=False,
        out_type='featmap',
        layer_cfgs=dict(init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0)),
        init_cfg=dict(
            type='vitplug.Pretrained',
            checkpoint='checkpoints/deit_base_patch16_224-b5f2ef4d.pth',
            reset=['cls_token'],  # DeiT-B has one
        ),
    ),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=768,
        loss=dict(type='CrossEntropyLoss'),
        init_cfg=dict(type='Constant', layer='Linear', val=0.0),
    ),
    init_cfg=[
        dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
        dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
    ],
    train_cfg=None,
)
