# ADE20K segmentation with UPerNet on DeiT-Ti.
# The paper's figures: mIoU 35.5 (Table 7).
# python tools/train.py configs/context_broadcast/deit-ti-p16_upernet_8xb2-40k_ade20k-512x512.py
_base_ = 'deit-ti-p16_upernet_8xb2-160k_ade20k-512x512.py'
train_cfg = dict(max_iters=40000, val_interval=4000)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, begin=1500, end=40000),
]
