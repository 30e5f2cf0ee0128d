# 300 epochs as cb_300e.py, with the 10 epochs of warm-up that the CB paper gives ViT-B with CB.
_base_ = 'cb_300e.py'
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=10, end=300, convert_to_iter_based=True),
]
