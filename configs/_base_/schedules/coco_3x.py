# 36 epochs of AdamW on COCO: 1000 iterations of warm-up; the learning rate is divided by 10 after 27 and 33 epochs.
_base_ = 'no_decay.py'
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05))
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=36, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', milestones=[27, 33], gamma=0.1, by_epoch=True, begin=0, end=36),
]
auto_scale_lr = dict(base_batch_size=16)
