# ImageNet-1k classification with ViT-B and DeiT's recipe.
# The paper's figures: top-1 81.5 (Table 11).
# python tools/train.py configs/refiner/vit-b-p16_8xb128-deit-300e_in1k.py
_base_ = [
    '../_base_/models/deit-b-p16.py',
    '../_base_/datasets/imagenet_bs128_224.py',
    '../_base_/schedules/refiner_deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
