# ImageNet-1k classification with a ViT of 16 blocks and Refiner convolving along rows and along columns of the map.
# The paper's figures: top-1 81.7.
# python tools/train.py configs/refiner/vit-16x384-p16-refiner-rowcol_8xb32-300e_in1k.py
_base_ = 'vit-16x384-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', constraint='rowcol')]))
