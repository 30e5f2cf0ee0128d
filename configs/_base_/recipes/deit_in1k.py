# DeiT's recipe for ImageNet-1k: 300 epochs, 1024 images per step, repeated augmentation.
_base_ = [
    '../datasets/imagenet_bs128_repeated_224.py',
    '../schedules/cb_300e.py',
    '../default_runtime_mmpretrain.py',
]
