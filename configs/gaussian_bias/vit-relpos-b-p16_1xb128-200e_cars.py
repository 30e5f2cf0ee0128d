# Stanford Cars classification with ViT-B (R).
# The paper's figures: top-1 80.154 (Table 3).
# python tools/train.py configs/gaussian_bias/vit-relpos-b-p16_1xb128-200e_cars.py
_base_ = [
    '../_base_/models/vit-relpos-b-p16_finetune.py',
    '../_base_/datasets/cars_bs128_gab_224.py',
    '../_base_/schedules/sgd_200e.py',
    '../_base_/runtime_mmpretrain_best.py',
]
model = dict(head=dict(num_classes=196))
