# 400 epochs of AdamW with the GAB paper's recipe. The warm-up starts at 1e-6; the paper does not state its length.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(flat_decay_mult=0.0),
)
train_cfg = dict(by_epoch=True, max_epochs=400, val_interval=10)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=2e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=400, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=2304)
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
