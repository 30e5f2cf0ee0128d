# As cosine_400i.py, 1500 iterations with 100 of warm-up.
_base_ = 'cosine_400i.py'
train_cfg = dict(max_iters=1500, val_interval=375)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=100),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=100, end=1500),
]
