# ImageNet-1k classification with a ViT of 16 blocks with 8 heads.
# The paper's figures: top-1 79.9.
# python tools/train.py configs/refiner/vit-16x384-h8-p16_8xb32-300e_in1k.py
_base_ = 'vit-16x384-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(arch=dict(num_heads=8)))
