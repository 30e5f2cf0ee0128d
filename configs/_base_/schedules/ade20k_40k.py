# 40k iterations of AdamW on ADE20K: 1500 of warm-up, then linear decay to zero.
_base_ = 'ade20k_160k.py'
train_cfg = dict(max_iters=40000, val_interval=4000)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, begin=1500, end=40000),
]
