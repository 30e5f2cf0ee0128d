# ImageNet-1k classification with PiT-B.
# The paper's figures: top-1 82.0 (Table 11).
# python tools/train.py configs/context_broadcast/pit-b-p14_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# PiT-B: blocks 3, 6, 4 of width 256, 512, 1024, patches of 14 x 14 with stride 7. Linear layers are initialised by
# torch's default, as in the authors' code.
model = dict(
    backbone=dict(_delete_=True, type='vitplug.PoolingVisionTransformer', arch='b', img_size=224, drop_path_rate=0.1),
    head=dict(type='LinearClsHead', in_channels=1024, init_cfg=None),
    init_cfg=None,
)
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
