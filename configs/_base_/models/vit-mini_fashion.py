# A ViT of 4 layers and width 96 for images of 28 x 28: 7 x 7 tokens of 4 x 4 pixels. Its classifier gets all tokens
# instead of their mean, which learns much faster in a short training. It fixes the input size.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=10, mean=[73.0], std=[90.0]),
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=96, num_layers=4, num_heads=4, feedforward_channels=192),
        img_size=28,
        patch_size=4,
        in_channels=1,
        # Patches overlap by half.
        patch_cfg=dict(kernel_size=8, padding=2),
        out_type='raw',
        with_cls_token=False,
    ),
    neck=dict(
        type='LinearNeck', in_channels=96 * 7 * 7, out_channels=64, gap_dim=0, norm_cfg=None, act_cfg=dict(type='GELU')
    ),
    head=dict(type='LinearClsHead', num_classes=10, in_channels=64, loss=dict(type='CrossEntropyLoss')),
)
