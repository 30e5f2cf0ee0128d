# As cb_300e.py, with the CB paper's 10 epochs of warm-up for ViT-B with CB.
_base_ = 'cb_300e.py'
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=10, end=300, convert_to_iter_based=True),
]
