# ImageNet-1k classification with the host of Refined-ViT-S, with 16 heads.
# python tools/train.py configs/refiner/convstem-vit-s-h16-p16_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(arch=dict(num_heads=16)))
