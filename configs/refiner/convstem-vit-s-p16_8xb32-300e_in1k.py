# ImageNet-1k classification with the host of Refined-ViT-S, the standard recipe.
# The paper's figures: top-1 82 (Table 13).
# python tools/train.py configs/refiner/convstem-vit-s-p16_8xb32-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# Stochastic depth and Mixup of the standard recipe, without CutMix.
model = dict(backbone=dict(drop_path_rate=0.1), train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]))
train_dataloader = dict(batch_size=32)
