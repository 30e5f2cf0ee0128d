# ImageNet-1k classification with a ViT of 16 blocks with 8 heads and Refiner.
# The paper's figures: top-1 82.5.
# python tools/train.py configs/refiner/vit-16x384-h8-p16-refiner_8xb32-300e_in1k.py
_base_ = 'vit-16x384-h8-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner')]))
