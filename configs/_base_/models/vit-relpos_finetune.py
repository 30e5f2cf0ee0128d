# ViT-S (R) as in vit-relpos.py, from its ImageNet-1k weights, without Mixup, label smoothing and stochastic depth.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=384, num_layers=12, num_heads=6, feedforward_channels=1536),
        img_size=224,
        patch_size=16,
        drop_path_rate=0.0,
        with_cls_token=False,
        use_abs_pos_embed=False,
        qkv_bias=False,
        final_norm=False,
        layer_scale_init_value=1e-6,
        out_type='avg_featmap',
        plugs=[dict(type='RelPosMlp')],
        init_cfg=dict(
            type='vitplug.Pretrained',
            checkpoint='checkpoints/vit_relpos_small_patch16_224.safetensors',
            # The paper trains a new position bias for every transfer.
            reset=['rel_pos_mlp'],
        ),
    ),
    neck=None,
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=384,
        loss=dict(type='CrossEntropyLoss'),
        init_cfg=None,
    ),
    train_cfg=None,
)
