# ImageNet-1k classification with a ViT of 16 blocks and DeiT's recipe.
# The paper's figures: top-1 80.8 (Figure 2).
# python tools/train.py configs/refiner/vit-16x384-p16_8xb128-deit-300e_in1k.py
_base_ = [
    '../_base_/models/vit-16x384-p16.py',
    '../_base_/datasets/imagenet_bs128_224.py',
    '../_base_/schedules/refiner_deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]))
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
