# ImageNet-1k classification with the host of Refined-ViT-S and Refiner, without reuse of maps.
# The paper's figures: top-1 83.0 (Table 13).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-share0_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner')]))
