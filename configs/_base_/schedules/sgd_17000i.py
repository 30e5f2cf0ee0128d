# As sgd_10000i.py, 17000 iterations as in BViT, whose paper gives no other settings.
_base_ = 'sgd_10000i.py'
train_cfg = dict(max_iters=17000)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=500),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=500, end=17000),
]
