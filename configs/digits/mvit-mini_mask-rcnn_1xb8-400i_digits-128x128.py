# Digit instance segmentation with Mask R-CNN on a small MViTv2.
# python tools/train.py configs/digits/mvit-mini_mask-rcnn_1xb8-400i_digits-128x128.py
_base_ = [
    '../_base_/models/mask-rcnn_swin-mini.py',
    '../_base_/datasets/digits_detection.py',
    '../_base_/schedules/cosine_400i.py',
    '../_base_/default_runtime_mmdet.py',
]
# An MViTv2 of three stages.
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.MViT',
        arch=dict(embed_dims=48, num_layers=6, num_heads=2, downscale_indices=[2, 4]),
        img_size=128,
        in_channels=1,
        out_scales=(0, 1, 2),
    )
)
