# DeiT's recipe for ImageNet-1k without repeated augmentation.
_base_ = [
    '../datasets/imagenet_bs128_224.py',
    '../schedules/cb_300e.py',
    '../default_runtime_mmpretrain.py',
]
