# ImageNet-1k classification with ViT-S (R).
# The paper's figures: top-1 80.576 (Table 2).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16_8xb288-400e_in1k.py
_base_ = [
    '../_base_/models/vit-relpos-s-p16.py',
    '../_base_/datasets/imagenet_bs288_gab_224.py',
    '../_base_/schedules/gab_400e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
