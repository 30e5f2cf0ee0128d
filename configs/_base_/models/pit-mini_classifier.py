# A PiT of 3 stages and 4 blocks. Its classifier gets all tokens of the last stage, 2 x 2 and the class token.
_base_ = 'mini_classifier.py'
model = dict(
    backbone=dict(
        type='vitplug.PoolingVisionTransformer',
        # Patches overlap by half.
        arch=dict(embed_dims=[48, 96, 192], depths=[1, 2, 1], num_heads=[2, 4, 8], patch_size=8, stride=4),
        img_size=32,
        in_channels=1,
        mlp_ratio=2.0,
        out_type='raw',
    ),
    neck=dict(in_channels=192 * 5),
)
