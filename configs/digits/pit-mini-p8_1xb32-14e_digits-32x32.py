# Digit classification with a small PiT.
# python tools/train.py configs/digits/pit-mini-p8_1xb32-14e_digits-32x32.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/digits_classification.py',
    '../_base_/schedules/cosine_14e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# A PiT of 3 stages and 4 blocks, of patches that overlap by half. Its classifier gets all tokens of the last stage, 2 x
# 2 and the class token.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.PoolingVisionTransformer',
        arch=dict(embed_dims=[48, 96, 192], depths=[1, 2, 1], num_heads=[2, 4, 8], patch_size=8, stride=4),
        img_size=32,
        in_channels=1,
        mlp_ratio=2.0,
        out_type='raw',
    ),
    neck=dict(in_channels=192 * 5),
)
