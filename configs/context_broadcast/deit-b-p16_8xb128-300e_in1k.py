# ImageNet-1k classification with DeiT-B.
# The paper's figures: top-1 81.8.
# python tools/train.py configs/context_broadcast/deit-b-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit-b-p16.py',
    '../_base_/datasets/imagenet_bs128_224.py',
    '../_base_/schedules/cb_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# The paper says that ViT-B has a longer warm-up, 10 epochs, and more stochastic depth, but not how much.
model = dict(backbone=dict(drop_path_rate=0.2))
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=10, end=300, convert_to_iter_based=True),
]
