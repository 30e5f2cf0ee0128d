# ImageNet-1k classification with Swin-T.
# The paper's figures: top-1 81.3, quoted from Swin (Table 2).
# python tools/train.py configs/residual_attention/swin-t-p4-w7_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/swin-t-p4-w7.py',
    '../_base_/datasets/imagenet_bs128_224.py',
    '../_base_/schedules/reswin_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
