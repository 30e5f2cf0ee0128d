# An LVT of three stages, 5 blocks and width 48 to 96, whose last map is 2 x 2 for images of 32 x 32.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=10, mean=[127.5], std=[64.0]),
    backbone=dict(
        type='vitplug.LVT',
        arch=dict(
            embed_dims=[48, 64, 96], depths=[1, 2, 2], num_heads=[2, 2, 3], mlp_ratios=[2, 2, 2], sr_ratios=[4, 2, 1]
        ),
        img_size=32,
        in_channels=1,
        out_type='avg_featmap',
    ),
    head=dict(type='LinearClsHead', num_classes=10, in_channels=96, loss=dict(type='CrossEntropyLoss')),
)
