# ImageNet-1k classification with Swin-T and residual attention, network and recipe as in ReSwin's code.
# python tools/train.py configs/residual_attention/swin-t-p4-w7-residual-official_8xb128-300e_in1k.py
# Differs from swin-t-p4-w7_8xb128-300e_in1k.py in: model.backbone.drop_path_rate, model.backbone.plugs,
# model.train_cfg, optim_wrapper.clip_grad, param_scheduler, train_pipeline, train_dataloader, test_pipeline,
# val_dataloader, test_dataloader.
_base_ = [
    '../_base_/models/swin.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(
        drop_path_rate=0.1,
        plugs=[dict(type='ResidualAttention', learnable=False, bias_mode='blend', stage_transition='flat_nearest')],
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8)], probs=[0.99]),
)
# RandAugment m9-n6-mstd0.5-inc1, little random erasing. The test crop is 0.91 of an image.
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[3].num_policies = 6
train_pipeline[4].erase_prob = 0.1
test_pipeline[1].scale = 246
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
# No gradient clipping. The code's learning rate starts and ends at 1e-5 for a maximum of 2.5e-4; all three are scaled
# for a maximum of 1e-3.
optim_wrapper = dict(clip_grad=None)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.04, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=4e-5, by_epoch=True, begin=20, end=300, convert_to_iter_based=True),
]
