# 300 epochs with the recipe of ReSwin's code: no gradient clipping. Its learning rate starts and ends at 1e-5 for a
# maximum of 2.5e-4; all three are scaled for a maximum of 1e-3.
_base_ = 'reswin_300e.py'
optim_wrapper = dict(clip_grad=None)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.04, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=4e-5, by_epoch=True, begin=20, end=300, convert_to_iter_based=True),
]
