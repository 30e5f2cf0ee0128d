# Garment classification with a small Swin Transformer.
# python tools/train.py configs/fashion/swin-mini-p2-w7_1xb64-1000i_fashion-28x28.py
_base_ = [
    '../_base_/models/swin-mini_fashion.py',
    '../_base_/datasets/fashion_classification.py',
    '../_base_/schedules/cosine_1000i.py',
    '../_base_/runtime_mmpretrain_iters.py',
]
