# ImageNet-1k classification with a ViT of 16 blocks and DeiT's recipe.
# The paper's figures: top-1 80.8 (Figure 2).
# python tools/train.py configs/refiner/vit-16x384-p16_8xb128-deit-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(arch=dict(_delete_=True, embed_dims=384, num_layers=16, num_heads=12, feedforward_channels=1152))
)
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
