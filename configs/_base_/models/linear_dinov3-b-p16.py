# A linear segmentation of frozen DINOv3-B/16 features: batch norm and a 1 x 1 convolution on the normalised last map.
# Test images are cut into windows of 512 x 512, one every 341 pixels, whose logits are averaged.
_base_ = ['segmentor.py', 'dinov3-b-p16.py']
model = dict(
    backbone=dict(_base_.pop('dinov3'), img_size=512, out_type='featmap', frozen='host'),
    decode_head=dict(
        type='vitplug.LinearSegHead',
        in_channels=[768],
        dropout_ratio=0.1,
        num_classes=150,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
