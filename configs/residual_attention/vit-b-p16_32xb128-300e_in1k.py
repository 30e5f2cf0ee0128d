# ImageNet-1k classification with ViT-B without class token.
# The paper's figures: top-1 77.8, quoted from the original ViT, which has a class token and was trained otherwise
# (Table 2).
# python tools/train.py configs/residual_attention/vit-b-p16_32xb128-300e_in1k.py
_base_ = [
    '../_base_/models/revit-b-p16.py',
    '../_base_/datasets/imagenet_bs128_revit_224.py',
    '../_base_/schedules/revit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# The paper names neither stochastic depth nor Mixup; its code has 0.2 and, in one of two published versions, no mixing.
model = dict(backbone=dict(drop_path_rate=0.2), train_cfg=None)
