# 30 epochs at a small constant learning rate, as in BSwin's fine-tuning from Swin.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-5, betas=(0.9, 0.999), weight_decay=1e-8),
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0),
        },
    ),
)
train_cfg = dict(by_epoch=True, max_epochs=30, val_interval=5)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [dict(type='ConstantLR', factor=1.0, by_epoch=True)]
auto_scale_lr = dict(base_batch_size=1024)
