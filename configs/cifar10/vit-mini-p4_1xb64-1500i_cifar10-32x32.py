# Photographs of CIFAR-10 at 32 x 32 pixels with the digits' small ViT, in colour.
# python tools/train.py configs/cifar10/vit-mini-p4_1xb64-1500i_cifar10-32x32.py
_base_ = [
    '../_base_/models/vit-mini_classifier.py',
    '../_base_/datasets/cifar10_folders.py',
    '../_base_/schedules/cosine_1500i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
model = dict(backbone=dict(in_channels=3))
