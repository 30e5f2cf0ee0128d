# CIFAR-100 from scratch with a small ViT.
# The paper's figures: top-1 73.8.
# python tools/train.py configs/further/vit-9x192-p4_1xb128-100e_cifar100.py
_base_ = [
    '../_base_/models/vit-9x192.py',
    '../_base_/datasets/cifar100_32.py',
    '../_base_/schedules/lsa_100e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
