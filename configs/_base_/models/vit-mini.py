# A ViT of 4 layers and width 96 with 8 x 8 tokens. The classifier gets all tokens instead of their mean: with a few
# thousand images this learns several times faster. It fixes the input size.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=10, mean=[127.5], std=[64.0]),
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=96, num_layers=4, num_heads=4, feedforward_channels=192),
        img_size=32,
        patch_size=4,
        in_channels=1,
        # Patches overlap by half.
        patch_cfg=dict(kernel_size=8, padding=2),
        out_type='raw',
        with_cls_token=False,
    ),
    neck=dict(
        type='LinearNeck', in_channels=96 * 8 * 8, out_channels=128, gap_dim=0, norm_cfg=None, act_cfg=dict(type='GELU')
    ),
    head=dict(type='LinearClsHead', num_classes=10, in_channels=128, loss=dict(type='CrossEntropyLoss')),
)
