# One epoch of warm-up, then a cosine schedule, updated at every iteration.
_base_ = 'adamw.py'
train_cfg = dict(by_epoch=True, max_epochs=14, val_interval=7)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=14, convert_to_iter_based=True),
]
