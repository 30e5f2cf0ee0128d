# A Swin Transformer of three stages, the backbone of mask-rcnn_swin-mini_fpn.py, for images of 64 x 64: 16 x 16 tokens
# in windows of 4 x 4, then 8 x 8, then 4 x 4 in one window.
_base_ = 'mini_classifier.py'
model = dict(
    backbone=dict(
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=48, depths=[2, 2, 2], num_heads=[2, 4, 8]),
        img_size=64,
        window_size=4,
        drop_path_rate=0.0,
        out_indices=(2,),
    ),
    neck=dict(in_channels=192 * 4 * 4),
)
