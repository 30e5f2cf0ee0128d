# The ViT of the evidence, trained four times as long.
_base_ = '../../../../configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py'
train_cfg = dict(max_iters=6000, val_interval=1500)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=100),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=100, end=6000),
]
