# 300 epochs of AdamW with DeiT's recipe: 1024 images per step, twice the learning rate.
_base_ = 'refiner_300e.py'
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=1024)
