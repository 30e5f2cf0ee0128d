# ImageNet-1k classification with DeiT-Ti.
# The paper's figures: top-1 72.2, quoted from DeiT, which was trained with its own recipe (Table III).
# python tools/train.py configs/broad_attention/deit-ti-p16_8xb160-300e_in1k.py
_base_ = [
    '../_base_/models/deit-ti-p16.py',
    '../_base_/datasets/imagenet_bs160_224.py',
    '../_base_/schedules/bvit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
