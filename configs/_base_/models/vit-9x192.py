# The ViT for small images of Locality Self-Attention's code: 9 blocks, width 192, 12 heads, MLPs of twice the width.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=192, num_layers=9, num_heads=12, feedforward_channels=384),
        img_size=32,
        patch_size=4,
        qkv_bias=False,
        norm_cfg=dict(type='LN'),
        layer_cfgs=dict(drop_path_rate=0.1),  # the same in all blocks
    ),
    neck=None,
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=100,
        in_channels=192,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
    # A quarter of the batches each; half of them as they are.
    train_cfg=dict(augments=[dict(type='Mixup', alpha=1.0), dict(type='CutMix', alpha=1.0)], probs=[0.25, 0.25]),
)
