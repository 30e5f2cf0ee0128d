# 12500 iterations of SGD for a linear classifier on frozen features: a cosine schedule, no weight decay.
_base_ = 'no_decay.py'
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.0))
train_cfg = dict(type='IterBasedTrainLoop', max_iters=12500, val_interval=1250)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=0, end=12500)]
auto_scale_lr = dict(base_batch_size=1024)
