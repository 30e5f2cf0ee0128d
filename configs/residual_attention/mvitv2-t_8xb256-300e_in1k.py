# ImageNet-1k classification with MViTv2-T.
# The paper's figures: top-1 82.3, quoted from MViTv2 (Table 2).
# python tools/train.py configs/residual_attention/mvitv2-t_8xb256-300e_in1k.py
_base_ = [
    '../_base_/models/swin.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# MViTv2-T: blocks 1, 2, 5, 2 of width 96 to 768. Queries, keys and values are pooled; stages begin at every half side.
model = dict(
    backbone=dict(_delete_=True, type='vitplug.MViT', arch='tiny', img_size=224, drop_path_rate=0.1),
)
# RandAugment m9-n6-mstd0.5-inc1 and random erasing, as for ReViT-B.
train_pipeline = _base_.train_pipeline
train_pipeline[3].num_policies = 6
train_dataloader = dict(batch_size=256, dataset=dict(pipeline=train_pipeline))
# The recipe of ReMViTv2-T's code, which is MViTv2's; the paper's weight decay is 0.1, the code's 0.05. The code's
# learning rates, 2.5e-4 at most and 1e-5 at both ends, are scaled by 8 as in the code.
optim_wrapper = dict(optimizer=dict(lr=2e-3, weight_decay=0.1), clip_grad=dict(max_norm=1.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.04, by_epoch=True, begin=0, end=70, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=8e-5, by_epoch=True, begin=70, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=2048)
