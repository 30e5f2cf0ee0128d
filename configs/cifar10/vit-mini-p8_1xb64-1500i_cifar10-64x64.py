# Photographs of CIFAR-10, enlarged to 64 x 64, with a small ViT: its backbone is that of CamVid's UPerNet.
# python tools/train.py configs/cifar10/vit-mini-p8_1xb64-1500i_cifar10-64x64.py
_base_ = [
    '../_base_/models/vit-mini_classifier.py',
    '../_base_/datasets/cifar10_folders_64.py',
    '../_base_/schedules/cosine_1500i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
# Still 8 x 8 tokens, from patches that overlap by half.
model = dict(backbone=dict(in_channels=3, img_size=64, patch_size=8, patch_cfg=dict(kernel_size=16, padding=4)))
