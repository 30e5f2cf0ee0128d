# ImageNet-1k classification with DeiT-Ti.
# The paper's figures: top-1 72.2, top-5 91.1; ImageNet-V2 top-1 59.9; ImageNet-ReaL top-1 80.1 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(arch=dict(_delete_=True, embed_dims=192, num_layers=12, num_heads=3, feedforward_channels=768)),
    head=dict(in_channels=192),
)
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
