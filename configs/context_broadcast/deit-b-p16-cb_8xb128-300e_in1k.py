# ImageNet-1k classification with DeiT-B and Context Broadcasting.
# The paper's figures: top-1 82.0, top-5 95.8; ImageNet-V2 top-1 70.6; ImageNet-ReaL top-1 86.8 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-p16-cb_8xb128-300e_in1k.py
# Differs from deit-b-p16_8xb128-300e_in1k.py in: model.backbone.drop_path_rate, model.backbone.plugs, param_scheduler.
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# Appendix A.3 of the paper: ViT-B with CB has 10 epochs of warm-up, not 5, and more stochastic depth.
model = dict(
    backbone=dict(arch='deit-b', drop_path_rate=0.2, plugs=[dict(type='ContextBroadcast')]), head=dict(in_channels=768)
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=10, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=10, end=300, convert_to_iter_based=True),
]
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
