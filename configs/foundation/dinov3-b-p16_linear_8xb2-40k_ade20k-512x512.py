# ADE20K segmentation with a linear head on frozen DINOv3-B features.
# python tools/train.py configs/foundation/dinov3-b-p16_linear_8xb2-40k_ade20k-512x512.py
_base_ = ['../_base_/ade20k_160k.py', '../_base_/models/dinov3-b-p16.py']
# Batch norm and a 1 x 1 convolution on the normalised last map. Test images are cut into windows of 512 x 512, one
# every 341 pixels, whose logits are averaged.
model = dict(
    backbone=dict(_base_.pop('dinov3'), _delete_=True, img_size=512, out_type='featmap', frozen='host'),
    decode_head=dict(
        _delete_=True,
        type='vitplug.LinearSegHead',
        in_channels=[768],
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    auxiliary_head=None,
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
train_cfg = dict(max_iters=40000, val_interval=4000)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, begin=1500, end=40000),
]
# For heads on frozen features.
optim_wrapper = dict(optimizer=dict(lr=1e-3), clip_grad=dict(max_norm=35.0))
