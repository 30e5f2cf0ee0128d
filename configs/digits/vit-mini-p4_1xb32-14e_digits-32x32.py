# Digit classification with a small ViT; trains on a CPU.
# python tools/train.py configs/digits/vit-mini-p4_1xb32-14e_digits-32x32.py
_base_ = [
    '../_base_/models/vit-mini_classifier.py',
    '../_base_/datasets/digits_classification.py',
    '../_base_/schedules/cosine_14e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
