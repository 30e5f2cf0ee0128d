# Refiner's recipe for ImageNet-1k: 300 epochs, 64 images per GPU, normalised as in its code.
_base_ = [
    '../datasets/imagenet_bs64_refiner_224.py',
    '../schedules/refiner_300e.py',
    '../default_runtime_mmpretrain.py',
]
