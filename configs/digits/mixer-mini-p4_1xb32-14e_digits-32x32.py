# Digit classification with a small Mixer.
# python tools/train.py configs/digits/mixer-mini-p4_1xb32-14e_digits-32x32.py
_base_ = [
    '../_base_/models/mixer-mini_classifier.py',
    '../_base_/datasets/digits_classification.py',
    '../_base_/schedules/cosine_14e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
