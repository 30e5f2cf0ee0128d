# Oxford-IIIT Pet classification with ViT-M (R).
# The paper's figures: top-1 92.810 (Table 3).
# python tools/train.py configs/gaussian_bias/vit-relpos-m-p16_1xb128-200e_pets.py
_base_ = [
    '../_base_/models/vit-relpos-m-p16_finetune.py',
    '../_base_/datasets/pets_bs128_gab_224.py',
    '../_base_/schedules/sgd_200e.py',
    '../_base_/runtime_mmpretrain_best.py',
]
model = dict(head=dict(num_classes=37))
