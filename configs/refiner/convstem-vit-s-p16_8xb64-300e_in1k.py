# ImageNet-1k classification with the host of Refined-ViT-S.
# python tools/train.py configs/refiner/convstem-vit-s-p16_8xb64-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# The same learning rate for 512 images per step.
auto_scale_lr = dict(base_batch_size=512)
