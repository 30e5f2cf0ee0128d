# Photographs of CIFAR-10, enlarged to 64 x 64, with a small Swin Transformer: its backbone is that of Mask R-CNN for
# nuclei.
# python tools/train.py configs/cifar10/swin-mini-p4-w4_1xb64-1000i_cifar10-64x64.py
_base_ = [
    '../_base_/models/swin-mini_classifier.py',
    '../_base_/datasets/cifar10_folders_64.py',
    '../_base_/schedules/cosine_1000i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
