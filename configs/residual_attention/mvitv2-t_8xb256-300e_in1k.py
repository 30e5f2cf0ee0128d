# ImageNet-1k classification with MViTv2-T.
# The paper's figures: top-1 82.3, quoted from MViTv2 (Table 2).
# python tools/train.py configs/residual_attention/mvitv2-t_8xb256-300e_in1k.py
_base_ = [
    '../_base_/models/mvitv2-t.py',
    '../_base_/datasets/imagenet_bs256_revit_224.py',
    '../_base_/schedules/remvit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
optim_wrapper = dict(optimizer=dict(weight_decay=0.1))
