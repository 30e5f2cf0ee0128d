# DeiT's 300 epochs of AdamW for 1024 images per step: 5 of warm-up, a cosine schedule, no gradient clipping.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
            'dist_token': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0),
            'rel_pos_h': dict(decay_mult=0.0),
            'rel_pos_w': dict(decay_mult=0.0),
        },
    ),
)
train_cfg = dict(by_epoch=True, max_epochs=300, val_interval=10)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=1024)
