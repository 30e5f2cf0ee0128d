# ImageNet-1k classification with Mixer-S/16.
# The paper's figures: top-1 74.3 (Table 11).
# python tools/train.py configs/context_broadcast/mixer-s-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# Mixer-S/16: 8 blocks of width 512, MLPs of width 256 over the tokens and 2048 over the channels. The head is
# initialised with zeros, as in the authors' code and in timm, whose norms have eps=1e-6.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.MlpMixer',
        arch='s',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1,
        norm_cfg=dict(type='LN', eps=1e-6),
    ),
    neck=dict(_delete_=True, type='GlobalAveragePooling', dim=1),
    head=dict(
        type='LinearClsHead', in_channels=512, init_cfg=dict(_delete_=True, type='Constant', layer='Linear', val=0.0)
    ),
    init_cfg=None,
)
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
