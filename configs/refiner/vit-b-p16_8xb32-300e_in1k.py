# ImageNet-1k classification with ViT-B.
# The paper's figures: top-1 79.5 (Table 2); top-1 79.3 (Table 11).
# python tools/train.py configs/refiner/vit-b-p16_8xb32-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(arch='deit-b'),
    head=dict(in_channels=768),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]),
)
train_dataloader = dict(batch_size=32)
