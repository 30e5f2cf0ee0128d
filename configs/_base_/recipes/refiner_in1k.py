# Refiner's recipe for ImageNet-1k: 300 epochs, 32 images per GPU, normalised as in DeiT.
_base_ = ['../datasets/imagenet_bs32_224.py', '../schedules/refiner_300e.py', '../default_runtime_mmpretrain.py']
