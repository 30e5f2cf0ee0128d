# 30 epochs of fine-tuning at a higher resolution, as in DeiT: a warm-up from 1e-6, then a small constant learning rate.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-6, betas=(0.9, 0.999), weight_decay=1e-8),
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
        },
    ),
)
train_cfg = dict(by_epoch=True, max_epochs=30, val_interval=5)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=0.2, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='ConstantLR', factor=1.0, by_epoch=True, begin=5, end=30),
]
auto_scale_lr = dict(base_batch_size=512)
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
