# A Swin Transformer of two stages for images of 28 x 28: 14 x 14 tokens in windows of 7 x 7, then 7 x 7 in one window.
_base_ = 'vit-mini_fashion.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=48, depths=[2, 2], num_heads=[2, 4]),
        img_size=28,
        patch_size=2,
        in_channels=1,
        window_size=7,
        drop_path_rate=0.0,
        out_indices=(1,),
    )
)
