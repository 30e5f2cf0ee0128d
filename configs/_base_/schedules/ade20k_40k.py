# 40k iterations of AdamW on ADE20K: 1500 of warm-up, then linear decay to zero.
_base_ = 'no_decay.py'
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01))
train_cfg = dict(type='IterBasedTrainLoop', max_iters=40000, val_interval=4000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, begin=1500, end=40000),
]
auto_scale_lr = dict(base_batch_size=16)
