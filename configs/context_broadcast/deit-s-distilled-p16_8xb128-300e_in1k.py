# ImageNet-1k classification with a distilled DeiT-S.
# The paper's figures: top-1 81.2, top-5 95.4; ImageNet-V2 top-1 69.8; ImageNet-ReaL top-1 86.9 (Table 6).
# python tools/train.py configs/context_broadcast/deit-s-distilled-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit_distilled.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
