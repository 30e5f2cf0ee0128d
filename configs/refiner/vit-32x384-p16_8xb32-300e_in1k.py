# ImageNet-1k classification with a ViT of 32 blocks.
# The paper's figures: top-1 79.2 (Table 2).
# python tools/train.py configs/refiner/vit-32x384-p16_8xb32-300e_in1k.py
_base_ = 'vit-16x384-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(arch=dict(num_layers=32)))
