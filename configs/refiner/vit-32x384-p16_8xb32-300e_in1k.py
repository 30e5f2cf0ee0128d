# ImageNet-1k classification with a ViT of 32 blocks.
# The paper's figures: top-1 79.2 (Table 2).
# python tools/train.py configs/refiner/vit-32x384-p16_8xb32-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(arch=dict(_delete_=True, embed_dims=384, num_layers=32, num_heads=12, feedforward_channels=1152)),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]),
)
train_dataloader = dict(batch_size=32)
