# CIFAR-100 classification with T2T-ViT-7.
# python tools/train.py configs/broad_attention/t2t-vit-7_8xb64-17000i_cifar100.py
_base_ = [
    '../_base_/models/t2t-vit-7_finetune.py',
    '../_base_/datasets/cifar100_bs64_224.py',
    '../_base_/schedules/sgd_17000i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
model = dict(head=dict(num_classes=100))
