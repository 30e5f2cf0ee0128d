# ImageNet-1k classification with ViT-B behind a convolutional stem.
# The paper's figures: top-1 82.2, 86 M parameters (Table 11).
# python tools/train.py configs/refiner/convstem-vit-b-p16_8xb32-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(
        arch=dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072),
        drop_path_rate=0.1,
    ),
    head=dict(in_channels=768),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]),
)
train_dataloader = dict(batch_size=32)
