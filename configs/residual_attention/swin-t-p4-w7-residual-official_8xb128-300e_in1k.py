# ImageNet-1k classification with Swin-T and residual attention, network and recipe as in ReSwin's code.
# python tools/train.py configs/residual_attention/swin-t-p4-w7-residual-official_8xb128-300e_in1k.py
# Differs from swin-t-p4-w7_8xb128-300e_in1k.py in: model.backbone.drop_path_rate, model.backbone.plugs,
# model.train_cfg, optim_wrapper.clip_grad, param_scheduler, train_pipeline, train_dataloader, test_pipeline,
# val_dataloader, test_dataloader.
_base_ = [
    '../_base_/models/swin-t-p4-w7.py',
    '../_base_/datasets/imagenet_bs128_reswin_224.py',
    '../_base_/schedules/reswin_official_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(
        drop_path_rate=0.1,
        plugs=[dict(type='ResidualAttention', learnable=False, bias_mode='blend', stage_transition='flat_nearest')],
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8)], probs=[0.99]),
)
