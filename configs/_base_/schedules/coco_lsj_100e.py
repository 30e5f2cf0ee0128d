# 100 epochs of COCO for 64 images per step, with layer-wise learning rate decay. The learning rate is divided by 10
# after 8/9 and 26/27 of the training.
_base_ = 'no_decay.py'
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='vitplug.LayerDecayOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(layer_decay_rate=0.7),
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=184375, val_interval=5000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=250),
    dict(type='MultiStepLR', milestones=[163889, 177546], gamma=0.1, by_epoch=False, begin=0, end=184375),
]
auto_scale_lr = dict(base_batch_size=64)
