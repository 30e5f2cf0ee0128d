# 300 epochs of AdamW with Swin's recipe, which ReSwin-T uses. The minimum learning rate, Swin's 5e-6 for 512 images, is
# scaled to 1024 images like the maximum.
_base_ = 'cb_300e.py'
optim_wrapper = dict(clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=20, end=300, convert_to_iter_based=True),
]
