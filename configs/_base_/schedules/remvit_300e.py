# 300 epochs with the recipe of ReMViTv2-T's code, which is MViTv2's; the paper's weight decay is 0.1, the code's 0.05.
# The code's learning rates, 2.5e-4 at most and 1e-5 at both ends, are scaled by 8 as in the code.
_base_ = 'no_decay.py'
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=2e-3, betas=(0.9, 0.999), weight_decay=0.05),
    clip_grad=dict(max_norm=1.0),
)
train_cfg = dict(by_epoch=True, max_epochs=300, val_interval=10)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type='LinearLR', start_factor=0.04, by_epoch=True, begin=0, end=70, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=8e-5, by_epoch=True, begin=70, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=2048)
