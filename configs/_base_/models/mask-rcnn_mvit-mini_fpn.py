# Mask R-CNN with FPN on an MViTv2 of three stages, for images of about 128 pixels.
_base_ = 'mask-rcnn_swin-mini_fpn.py'
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
