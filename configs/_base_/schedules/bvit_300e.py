# 300 epochs of AdamW with the BViT paper's recipe. The learning rate follows DeiT's rule, 5e-4 for 512 images. The
# paper's 5000 steps of warm-up are 5 epochs for 1280 images. The decay of the averaged weights (EMA) is DeiT's.
_base_ = 'no_decay.py'
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1.25e-3, betas=(0.9, 0.999), weight_decay=0.05),
)
train_cfg = dict(by_epoch=True, max_epochs=300, val_interval=10)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=1280)
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
