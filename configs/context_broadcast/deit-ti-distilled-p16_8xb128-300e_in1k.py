# ImageNet-1k classification with a distilled DeiT-Ti.
# The paper's figures: top-1 74.5, top-5 91.9; ImageNet-V2 top-1 62.4; ImageNet-ReaL top-1 82.1 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-distilled-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit_distilled.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(backbone=dict(arch='deit-t'), head=dict(in_channels=192))
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
