# As coco_reswin_3x.py for 64 images per step: 250 iterations of warm-up.
_base_ = 'coco_reswin_3x.py'
optim_wrapper = dict(optimizer=dict(lr=1.6e-4, weight_decay=0.1))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=250),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=True, begin=0, end=36, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=64)
