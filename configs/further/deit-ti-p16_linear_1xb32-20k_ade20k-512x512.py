# ADE20K segmentation with a linear head on a frozen DeiT-Ti, by the recipe of LocAt.
# python tools/train.py configs/further/deit-ti-p16_linear_1xb32-20k_ade20k-512x512.py
# Pre-trained by: python tools/train.py configs/further/deit-ti-p16_8xb128-linear-300e_in1k.py
_base_ = '../_base_/ade20k_160k.py'
# The tokens after the last block, without final norm; a 1 x 1 convolution with norm before the one to the classes.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.VisionTransformer',
        arch='deit-t',
        img_size=224,
        patch_size=16,
        out_type='featmap',
        final_norm=False,
        frozen_stages=12,
        init_cfg=dict(
            type='vitplug.Pretrained', checkpoint='work_dirs/deit-ti-p16_8xb128-linear-300e_in1k/epoch_300.pth'
        ),
    ),
    decode_head=dict(
        _delete_=True,
        type='FCNHead',
        in_channels=192,
        in_index=0,
        channels=512,
        num_convs=1,
        kernel_size=1,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=150,
        norm_cfg=dict(type='GN', num_groups=1),
        act_cfg=dict(type='GELU'),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    auxiliary_head=None,
)
train_dataloader = dict(batch_size=32)
auto_scale_lr = dict(base_batch_size=32)
train_cfg = dict(max_iters=20000, val_interval=4000)
default_hooks = dict(checkpoint=dict(interval=4000))
optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-4, by_epoch=False, begin=0, end=5000),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, begin=5000, end=20000),
]
