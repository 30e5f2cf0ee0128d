# ViT-S (R): relative position biases from a small MLP, no absolute positions, no class token, norm after the average.
# As in timm, layers have torch's default initialisation, but the blocks' MLPs have mmpretrain's.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=384, num_layers=12, num_heads=6, feedforward_channels=1536),
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1,
        with_cls_token=False,
        use_abs_pos_embed=False,
        qkv_bias=False,
        final_norm=False,
        layer_scale_init_value=1e-6,
        out_type='avg_featmap',
        plugs=[dict(type='RelPosMlp')],
    ),
    neck=None,
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=384,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=None,
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2), dict(type='CutMix', alpha=1.0)]),
)
