# Garment classification with a small ViT.
# python tools/train.py configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/fashion.py',
    '../_base_/schedules/cosine_1500i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
# 7 x 7 tokens of 4 x 4 pixels.
model = dict(
    data_preprocessor=dict(mean=[73.0], std=[90.0]),
    backbone=dict(img_size=28),
    neck=dict(in_channels=96 * 7 * 7, out_channels=64),
    head=dict(in_channels=64),
)
