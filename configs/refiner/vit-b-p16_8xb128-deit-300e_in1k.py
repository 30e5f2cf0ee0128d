# ImageNet-1k classification with ViT-B and DeiT's recipe.
# The paper's figures: top-1 81.5 (Table 11).
# python tools/train.py configs/refiner/vit-b-p16_8xb128-deit-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(backbone=dict(arch='deit-b'), head=dict(in_channels=768))
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
