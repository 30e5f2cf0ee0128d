# CIFAR-100 classification with T2T-ViT-7 and broad attention, BT2T-ViT-7.
# python tools/train.py configs/broad_attention/t2t-vit-7-broad_8xb64-17000i_cifar100.py
_base_ = 't2t-vit-7_8xb64-17000i_cifar100.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
