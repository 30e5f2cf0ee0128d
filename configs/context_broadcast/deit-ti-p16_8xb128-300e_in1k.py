# ImageNet-1k classification with DeiT-Ti.
# The paper's figures: top-1 72.2.
# python tools/train.py configs/context_broadcast/deit-ti-p16_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/deit-ti-p16.py',
    '../_base_/datasets/imagenet_bs128_224.py',
    '../_base_/schedules/cb_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
