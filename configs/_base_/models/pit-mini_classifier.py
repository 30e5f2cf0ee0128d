# A PiT of 3 stages and 4 blocks. Its classifier gets all tokens of the last stage, 2 x 2 and the class token, which
# fixes the input size.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=10, mean=[127.5], std=[64.0]),
    backbone=dict(
        type='vitplug.PoolingVisionTransformer',
        # Patches overlap by half.
        arch=dict(embed_dims=[48, 96, 192], depths=[1, 2, 1], num_heads=[2, 4, 8], patch_size=8, stride=4),
        img_size=32,
        in_channels=1,
        mlp_ratio=2.0,
        out_type='raw',
    ),
    neck=dict(
        type='LinearNeck', in_channels=192 * 5, out_channels=128, gap_dim=0, norm_cfg=None, act_cfg=dict(type='GELU')
    ),
    head=dict(type='LinearClsHead', num_classes=10, in_channels=128, loss=dict(type='CrossEntropyLoss')),
)
