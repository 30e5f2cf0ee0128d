# Stanford Dogs classification with ViT-S (R).
# The paper's figures: top-1 81.535 (Table 3); validation top-1 82.777 (supplement).
# python tools/train.py configs/gaussian_bias/vit-relpos-s-p16_1xb128-200e_dogs.py
_base_ = [
    '../_base_/models/vit-relpos-s-p16_finetune.py',
    '../_base_/datasets/dogs_bs128_gab_224.py',
    '../_base_/schedules/sgd_200e.py',
    '../_base_/runtime_mmpretrain_best.py',
]
model = dict(head=dict(num_classes=120))
