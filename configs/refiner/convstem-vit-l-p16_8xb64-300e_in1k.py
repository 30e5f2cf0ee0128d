# ImageNet-1k classification with the host of Refined-ViT-L.
# python tools/train.py configs/refiner/convstem-vit-l-p16_8xb64-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=512, num_layers=32, num_heads=16, feedforward_channels=1536),
        drop_path_rate=0.1 * 32 / 12,
    ),
    head=dict(in_channels=512),
)
# The same learning rate for 512 images per step.
auto_scale_lr = dict(base_batch_size=512)
