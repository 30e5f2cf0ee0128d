# Fine-tuning of mmpretrain's ViT, head included, in vitplug's ViT, which takes plugs.
# VITPLUG_STOCK is the checkpoint, by default that of stock-vit-mini-p4_1xb64-1500i_fashion-28x28.py.
# Differs from vit-mini-p4_1xb64-1500i_fashion-28x28.py in: load_from, optim_wrapper.optimizer.lr, param_scheduler,
# train_cfg.
# python tools/train.py configs/fashion/vit-mini-p4_1xb64-stock-400i_fashion-28x28.py
_base_ = 'vit-mini-p4_1xb64-1500i_fashion-28x28.py'
load_from = '{{$VITPLUG_STOCK:work_dirs/stock-vit-mini-p4_1xb64-1500i_fashion-28x28/iter_1500.pth}}'
optim_wrapper = dict(optimizer=dict(lr=5e-4))
train_cfg = dict(max_iters=400, val_interval=400)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=400),
]
