# 100 epochs of AdamW with 10 of warm-up and a cosine schedule, as in the code of Locality Self-Attention.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    paramwise_cfg=dict(
        flat_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
        },
    ),
)
train_cfg = dict(by_epoch=True, max_epochs=100, val_interval=1)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', by_epoch=True, begin=10, end=100, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=128)
