# ImageNet-1k classification with a distilled DeiT-B.
# The paper's figures: top-1 83.4, top-5 96.4; ImageNet-V2 top-1 72.2; ImageNet-ReaL top-1 88.1 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-distilled-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit_distilled.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(backbone=dict(arch='deit-b'), head=dict(in_channels=768))
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
