# ImageNet-1k classification with Swin-T.
# The paper's figures: top-1 81.3.
# python tools/train.py configs/residual_attention/swin-t-p4-w7_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/swin-t-p4-w7.py',
    '../_base_/datasets/imagenet_bs128_reswin_224.py',
    '../_base_/schedules/reswin_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(drop_path_rate=0.1),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8)], probs=[0.99]),
)
