# 400 iterations of AdamW: 50 of warm-up, then a cosine schedule.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1.5e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0),
            'rel_pos_h': dict(decay_mult=0.0),
            'rel_pos_w': dict(decay_mult=0.0),
        },
    ),
    clip_grad=dict(max_norm=1.0),
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=400, val_interval=200)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=400),
]
