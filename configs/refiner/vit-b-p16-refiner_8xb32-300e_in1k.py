# ImageNet-1k classification with ViT-B and Refiner.
# The paper's figures: top-1 81.2 (Table 11).
# python tools/train.py configs/refiner/vit-b-p16-refiner_8xb32-300e_in1k.py
_base_ = 'vit-b-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner')]))
