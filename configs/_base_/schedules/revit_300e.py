# 300 epochs with ReViT-B's recipe and AdamW. The paper says Adam; its weight decay of 0.3 would act as an L2 penalty.
_base_ = 'cb_300e.py'
optim_wrapper = dict(optimizer=dict(weight_decay=0.3), clip_grad=dict(max_norm=1.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=30, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=4.8e-6, by_epoch=True, begin=30, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=4096)
