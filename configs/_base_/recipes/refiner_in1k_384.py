# Fine-tuning on ImageNet-1k at 384 x 384: 30 epochs, 64 images per GPU, normalised as in Refiner's code.
_base_ = [
    '../datasets/imagenet_bs64_refiner_384.py',
    '../schedules/finetune_size_30e.py',
    '../default_runtime_mmpretrain.py',
]
