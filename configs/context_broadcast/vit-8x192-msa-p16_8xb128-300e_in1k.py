# ImageNet-1k classification with 8 blocks of DeiT-Ti followed by one more self-attention.
# The paper's figures: curves without printed values (Figure 2).
# python tools/train.py configs/context_broadcast/vit-8x192-msa-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
block = _base_.model.backbone.layer_cfgs
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=192, num_layers=9, num_heads=3, feedforward_channels=768),
        layer_cfgs=[*[block] * 8, dict(block, with_ffn=False)],
    ),
    head=dict(in_channels=192),
)
# DeiT repeats each image three times with different augmentation.
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
