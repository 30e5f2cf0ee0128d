# 300 epochs with the recipe of ReMViTv2-T's code, which is MViTv2's; the paper's weight decay is 0.1, the code's 0.05.
# The code's learning rates, 2.5e-4 at most and 1e-5 at both ends, are scaled by 8 as in the code.
_base_ = 'cb_300e.py'
optim_wrapper = dict(optimizer=dict(lr=2e-3), clip_grad=dict(max_norm=1.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.04, by_epoch=True, begin=0, end=70, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=8e-5, by_epoch=True, begin=70, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=2048)
