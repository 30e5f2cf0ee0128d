# ImageNet-1k classification with ViT-B without class token.
# The paper's figures: top-1 77.8, quoted from the original ViT, which has a class token and was trained otherwise
# (Table 2).
# python tools/train.py configs/residual_attention/vit-b-p16_32xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# No class token: the classifier gets the mean of the normalised tokens. The paper names neither stochastic depth nor
# Mixup; its code has 0.2 and, in one of two published versions, no mixing.
model = dict(
    backbone=dict(arch='deit-b', drop_path_rate=0.2, with_cls_token=False, out_type='featmap'),
    neck=dict(_delete_=True, type='GlobalAveragePooling'),
    head=dict(type='LinearClsHead', in_channels=768),
    train_cfg=None,
)
# RandAugment m9-n6-mstd0.5-inc1 and random erasing.
train_pipeline = _base_.train_pipeline
train_pipeline[3].num_policies = 6
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
# AdamW, where the paper says Adam: its weight decay of 0.3 would act as an L2 penalty.
optim_wrapper = dict(optimizer=dict(weight_decay=0.3), clip_grad=dict(max_norm=1.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=30, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=4.8e-6, by_epoch=True, begin=30, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=4096)
