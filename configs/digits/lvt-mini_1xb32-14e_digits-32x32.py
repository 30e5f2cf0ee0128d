# Digit classification with a small LVT.
# python tools/train.py configs/digits/lvt-mini_1xb32-14e_digits-32x32.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/digits_classification.py',
    '../_base_/schedules/cosine_14e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# An LVT of three stages, 5 blocks and width 48 to 96, whose last map is 2 x 2.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.LVT',
        arch=dict(
            embed_dims=[48, 64, 96], depths=[1, 2, 2], num_heads=[2, 2, 3], mlp_ratios=[2, 2, 2], sr_ratios=[4, 2, 1]
        ),
        img_size=32,
        in_channels=1,
        out_type='avg_featmap',
    ),
    neck=None,
    head=dict(in_channels=96),
)
