# UPerNet on a ViT of 4 layers and width 96. The patches overlap by half, with a stride of 8 pixels, so the pyramid has
# strides 4, 8, 16 and 32.
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[127.5],
        std=[64.0],
        size=(128, 128),
        seg_pad_val=255,
        test_cfg=dict(size_divisor=32),
    ),
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch=dict(embed_dims=96, num_layers=4, num_heads=4, feedforward_channels=192),
        img_size=128,
        patch_size=8,
        in_channels=1,
        patch_cfg=dict(kernel_size=16, padding=4),
        out_indices=[0, 1, 2, 3],
        out_type='featmap',
        with_cls_token=False,
    ),
    neck=dict(type='Feature2Pyramid', embed_dim=96, rescales=[2, 1, 0.5, 0.25], norm_cfg=norm_cfg),
    decode_head=dict(
        type='UPerHead',
        in_index=[0, 1, 2, 3],
        in_channels=[96, 96, 96, 96],
        pool_scales=(1, 2, 3, 6),
        channels=64,
        dropout_ratio=0.0,
        num_classes=11,
        norm_cfg=norm_cfg,
        align_corners=False,
        # Most pixels are background; without class weights the model would predict only background for a long time.
        loss_decode=dict(type='CrossEntropyLoss', class_weight=[0.3] + [1.0] * 10),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
