# Photographs of CIFAR-10, enlarged to 64 x 64, with a small ViT: its backbone is that of CamVid's UPerNet.
# python tools/train.py configs/cifar10/vit-mini-p8_1xb64-1500i_cifar10-64x64.py
_base_ = [
    '../_base_/models/vit-mini.py',
    '../_base_/datasets/cifar10_32.py',
    '../_base_/schedules/cosine_1500i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
# Still 8 x 8 tokens, from patches that overlap by half.
# mmpretrain gives RGB here, and BGR of the photographs that such backbones are transferred to: channels are swapped.
model = dict(
    data_preprocessor=dict(to_rgb=True),
    backbone=dict(in_channels=3, img_size=64, patch_size=8, patch_cfg=dict(kernel_size=16, padding=4)),
)
# CIFAR-10 enlarged to 64 x 64: backbones trained on it have the patch size of the models that segment and detect.
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline.insert(-1, dict(type='Resize', scale=64))
test_pipeline.insert(-1, dict(type='Resize', scale=64))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
