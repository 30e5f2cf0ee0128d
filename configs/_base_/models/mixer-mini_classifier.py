# A Mixer of 4 blocks and width 96. Its classifier gets all 8 x 8 tokens, as that of the small ViT does.
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=10, mean=[127.5], std=[64.0]),
    backbone=dict(
        type='vitplug.MlpMixer',
        arch=dict(embed_dims=96, num_layers=4, tokens_mlp_dims=48, channels_mlp_dims=192),
        img_size=32,
        patch_size=4,
        in_channels=1,
        # Patches overlap by half.
        patch_cfg=dict(kernel_size=8, padding=2),
    ),
    neck=dict(
        type='LinearNeck', in_channels=96 * 8 * 8, out_channels=128, gap_dim=0, norm_cfg=None, act_cfg=dict(type='GELU')
    ),
    head=dict(type='LinearClsHead', num_classes=10, in_channels=128, loss=dict(type='CrossEntropyLoss')),
)
