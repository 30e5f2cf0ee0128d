# As sgd_10000i.py, 500 iterations. The warm-up of 100 is that of the configs in ViT's code that train for 500 steps:
# its default of 500 would leave no decay.
_base_ = 'sgd_10000i.py'
train_cfg = dict(max_iters=500, val_interval=100)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=100),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=100, end=500),
]
