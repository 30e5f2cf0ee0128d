# ImageNet-1k classification with DeiT-B.
# The paper's figures: top-1 81.8, top-5 95.6; ImageNet-V2 top-1 70.5; ImageNet-ReaL top-1 86.7 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(backbone=dict(arch='deit-b'), head=dict(in_channels=768))
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
