# Garment classification with a small ViT.
# python tools/train.py configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py
_base_ = [
    '../_base_/models/vit-mini_fashion.py',
    '../_base_/datasets/fashion_classification.py',
    '../_base_/schedules/cosine_1500i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
