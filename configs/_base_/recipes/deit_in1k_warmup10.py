# DeiT's recipe for ImageNet-1k with repeated augmentation and the CB paper's 10 epochs of warm-up.
_base_ = [
    '../datasets/imagenet_bs128_repeated_224.py',
    '../schedules/cb_300e_warmup10.py',
    '../default_runtime_mmpretrain.py',
]
