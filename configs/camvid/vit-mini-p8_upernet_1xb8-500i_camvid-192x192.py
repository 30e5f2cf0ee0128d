# CamVid's UPerNet, trained for 500 iterations: for backbones that are trained already.
# Differs from vit-mini-p8_upernet_1xb8-1200i_camvid-192x192.py in: param_scheduler, train_cfg.
# python tools/train.py configs/camvid/vit-mini-p8_upernet_1xb8-500i_camvid-192x192.py
_base_ = 'vit-mini-p8_upernet_1xb8-1200i_camvid-192x192.py'
train_cfg = dict(max_iters=500, val_interval=250)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=500),
]
