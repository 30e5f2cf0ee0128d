# CIFAR-100 classification with DeiT-S and broad attention, BViT-22M, from weights of the host without the plug.
# python tools/train.py configs/broad_attention/deit-s-p16-broad_8xb64-host-17000i_cifar100.py
# Differs from deit-s-p16-broad_8xb64-17000i_cifar100.py in: model.backbone.init_cfg.checkpoint.
_base_ = 'deit-s-p16-broad_8xb64-17000i_cifar100.py'
model = dict(backbone=dict(init_cfg=dict(checkpoint='checkpoints/deit_small_patch16_224-cd65a155.pth')))
