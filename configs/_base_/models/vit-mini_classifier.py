# A ViT of 4 layers and width 96 with 8 x 8 tokens.
_base_ = 'mini_classifier.py'
model = dict(
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
    neck=dict(in_channels=96 * 8 * 8),
)
