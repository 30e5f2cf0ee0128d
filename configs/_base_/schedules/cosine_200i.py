# As cosine_400i.py, 200 iterations with 20 of warm-up, for backbones that are trained already.
_base_ = 'cosine_400i.py'
train_cfg = dict(max_iters=200, val_interval=200)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=20),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=20, end=200),
]
