# Garment classification with a small Swin Transformer.
# python tools/train.py configs/fashion/swin-mini-p2-w7_1xb64-1000i_fashion-28x28.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/fashion.py',
    '../_base_/schedules/cosine_1000i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
# Two stages: 14 x 14 tokens in windows of 7 x 7, then 7 x 7 in one window.
model = dict(
    data_preprocessor=dict(mean=[73.0], std=[90.0]),
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
    ),
    neck=dict(in_channels=96 * 7 * 7, out_channels=64),
    head=dict(in_channels=64),
)
