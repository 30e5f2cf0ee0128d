# ImageNet-1k classification with a ViT of 16 blocks.
# The paper's figures: top-1 78.9 (Table 2 and Figure 2).
# python tools/train.py configs/refiner/vit-16x384-p16_8xb32-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(arch=dict(_delete_=True, embed_dims=384, num_layers=16, num_heads=12, feedforward_channels=1152)),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]),
)
train_dataloader = dict(batch_size=32)
