# Photographs of CIFAR-10, enlarged to 64 x 64, with a small Swin Transformer: its backbone is that of Mask R-CNN for
# nuclei.
# python tools/train.py configs/cifar10/swin-mini-p4-w4_1xb64-1000i_cifar10-64x64.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/cifar10_32.py',
    '../_base_/schedules/cosine_1000i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
# Three stages, the backbone of mask-rcnn_swin-mini.py: 16 x 16 tokens in windows of 4 x 4, then 8 x 8, then 4 x 4 in
# one window.
# mmpretrain gives RGB here, and BGR of the photographs that such backbones are transferred to: channels are swapped.
model = dict(
    data_preprocessor=dict(to_rgb=True),
    backbone=dict(
        _delete_=True,
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=48, depths=[2, 2, 2], num_heads=[2, 4, 8]),
        img_size=64,
        window_size=4,
        drop_path_rate=0.0,
        out_indices=(2,),
    ),
    neck=dict(in_channels=192 * 4 * 4),
)
# CIFAR-10 enlarged to 64 x 64: backbones trained on it have the patch size of the models that segment and detect.
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline.insert(-1, dict(type='Resize', scale=64))
test_pipeline.insert(-1, dict(type='Resize', scale=64))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
