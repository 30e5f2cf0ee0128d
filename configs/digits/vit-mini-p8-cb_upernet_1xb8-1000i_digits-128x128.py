# The demo's digit segmentation: UPerNet on a small ViT with Context Broadcasting, and a short schedule.
# Reached mIoU 0.789 on held-out digits in 434 s on one of 2 CPU cores, the other one training, too (one run).
# Differs from vit-mini-p8-cb_upernet_1xb8-1200i_digits-128x128.py in: param_scheduler, train_cfg.
# python tools/train.py configs/digits/vit-mini-p8-cb_upernet_1xb8-1000i_digits-128x128.py
_base_ = 'vit-mini-p8-cb_upernet_1xb8-1200i_digits-128x128.py'
train_cfg = dict(max_iters=1000, val_interval=1000)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=1000),
]
