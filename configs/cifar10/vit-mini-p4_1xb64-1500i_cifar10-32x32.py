# Photographs of CIFAR-10 at 32 x 32 pixels with the digits' small ViT, in colour.
# python tools/train.py configs/cifar10/vit-mini-p4_1xb64-1500i_cifar10-32x32.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/cifar10_32.py',
    '../_base_/schedules/cosine_1500i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
# mmpretrain gives RGB here, and BGR of the photographs that such backbones are transferred to: channels are swapped.
model = dict(data_preprocessor=dict(to_rgb=True), backbone=dict(in_channels=3))
