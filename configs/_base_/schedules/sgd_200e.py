# 200 epochs of SGD as in the GAB paper's fine-tuning, with a cosine schedule updated after every epoch. As in its
# script, everything except A and sigma has weight decay, also norms and biases. (No scalar of a plug has any.)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=5e-4),
)
train_cfg = dict(by_epoch=True, max_epochs=200, val_interval=1)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=0, end=200)]
auto_scale_lr = dict(base_batch_size=128)
