# As cosine_400i.py, 1000 iterations with 50 of warm-up.
_base_ = 'cosine_400i.py'
train_cfg = dict(max_iters=1000, val_interval=500)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=1000),
]
