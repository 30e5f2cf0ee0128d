# 14 epochs of AdamW: one of warm-up, then a cosine schedule, updated at every iteration.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1.5e-3, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
        },
    ),
    clip_grad=dict(max_norm=1.0),
)
train_cfg = dict(by_epoch=True, max_epochs=14, val_interval=7)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=14, convert_to_iter_based=True),
]
