# ImageNet-1k classification with the host of Refined-ViT-M.
# python tools/train.py configs/refiner/convstem-vit-m-p16_8xb64-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=420, num_layers=32, num_heads=12, feedforward_channels=1260),
        drop_path_rate=0.1 * 32 / 12,
    ),
    head=dict(in_channels=420),
)
# The same learning rate for 512 images per step.
auto_scale_lr = dict(base_batch_size=512)
