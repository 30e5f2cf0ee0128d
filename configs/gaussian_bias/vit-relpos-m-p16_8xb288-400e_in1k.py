# ImageNet-1k classification with ViT-M (R).
# The paper's figures: top-1 81.224 (Table 2).
# python tools/train.py configs/gaussian_bias/vit-relpos-m-p16_8xb288-400e_in1k.py
_base_ = 'vit-relpos-s-p16_8xb288-400e_in1k.py'
model = dict(
    backbone=dict(arch=dict(embed_dims=512, num_layers=12, num_heads=8, feedforward_channels=2048)),
    head=dict(in_channels=512),
)
