# A linear segmentation of frozen DINOv3-B/16 features: batch norm and a 1 x 1 convolution on the normalised last map.
# Test images are cut into windows of 512 x 512, one every 341 pixels, whose logits are averaged.
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512),
    ),
    backbone=dict(
        type='vitplug.FoundationTransformer',
        arch='dinov3-b',
        img_size=512,
        out_type='featmap',
        frozen='host',
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/dinov3_vitb16_pretrain_lvd1689m-73cec8be.pth'),
    ),
    decode_head=dict(
        type='vitplug.LinearSegHead',
        in_channels=[768],
        dropout_ratio=0.1,
        num_classes=150,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
