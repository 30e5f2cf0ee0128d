# ImageNet-1k classification with ViT-B (R).
# The paper's figures: top-1 81.381 (Table 2).
# python tools/train.py configs/gaussian_bias/vit-relpos-b-p16_8xb288-400e_in1k.py
_base_ = 'vit-relpos-s-p16_8xb288-400e_in1k.py'
model = dict(
    backbone=dict(arch=dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072)),
    head=dict(in_channels=768),
)
