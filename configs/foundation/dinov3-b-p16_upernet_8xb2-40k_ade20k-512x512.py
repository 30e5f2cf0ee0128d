# ADE20K segmentation with UPerNet on frozen DINOv3-B features.
# python tools/train.py configs/foundation/dinov3-b-p16_upernet_8xb2-40k_ade20k-512x512.py
_base_ = ['../_base_/ade20k_160k.py', '../_base_/models/dinov3-b-p16.py']
# The maps after blocks 3, 6, 9 and 12 become a pyramid. Test images are cut into windows of 512 x 512, one every 341
# pixels, whose logits are averaged.
model = dict(
    backbone=dict(
        _base_.pop('dinov3'),
        _delete_=True,
        img_size=512,
        out_type='featmap',
        frozen='host',
        out_indices=[2, 5, 8, 11],
        final_norm=False,
    ),
    neck=dict(
        type='Feature2Pyramid', embed_dim=768, rescales=[4, 2, 1, 0.5], norm_cfg=dict(type='SyncBN', requires_grad=True)
    ),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
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
