# ImageNet-1k classification with Mixer-S/16.
# The paper's figures: top-1 74.3 (Table 11).
# python tools/train.py configs/context_broadcast/mixer-s-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/mixer-s-p16.py',
    '../_base_/datasets/imagenet_bs128_repeated_224.py',
    '../_base_/schedules/cb_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
