# 10000 iterations of SGD as in ViT's fine-tuning: 500 of warm-up, a cosine schedule, no weight decay, gradient
# clipping. The learning rate is one of ViT's grid: 0.001, 0.003, 0.01 and 0.03.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0),
    # Only so does mmengine leave frozen parameters out of the optimizer.
    paramwise_cfg=dict(flat_decay_mult=0.0),
    clip_grad=dict(max_norm=1.0),
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=10000, val_interval=1000)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=500),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=500, end=10000),
]
auto_scale_lr = dict(base_batch_size=512)
