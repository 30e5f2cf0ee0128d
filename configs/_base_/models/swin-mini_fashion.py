# A Swin Transformer of two stages for images of 28 x 28: 14 x 14 tokens in windows of 7 x 7, then 7 x 7 in one window.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=10, mean=[73.0], std=[90.0]),
    backbone=dict(
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=48, depths=[2, 2], num_heads=[2, 4]),
        img_size=28,
        patch_size=2,
        in_channels=1,
        window_size=7,
        drop_path_rate=0.0,
        out_indices=(1,),
    ),
    neck=dict(
        type='LinearNeck', in_channels=96 * 7 * 7, out_channels=64, gap_dim=0, norm_cfg=None, act_cfg=dict(type='GELU')
    ),
    head=dict(type='LinearClsHead', num_classes=10, in_channels=64, loss=dict(type='CrossEntropyLoss')),
)
