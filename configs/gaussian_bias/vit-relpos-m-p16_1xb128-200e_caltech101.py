# Caltech-101 classification with ViT-M (R).
# The paper's figures: top-1 89.132 (Table 3).
# python tools/train.py configs/gaussian_bias/vit-relpos-m-p16_1xb128-200e_caltech101.py
_base_ = [
    '../_base_/models/vit-relpos-m-p16_finetune.py',
    '../_base_/datasets/caltech101_bs128_gab_224.py',
    '../_base_/schedules/sgd_200e.py',
    '../_base_/runtime_mmpretrain_best.py',
]
model = dict(head=dict(num_classes=102))
