# ImageNet-1k classification with ViT-B, DeiT's recipe and Refiner.
# The paper's figures: top-1 82.3 (Table 11).
# python tools/train.py configs/refiner/vit-b-p16-refiner_8xb128-deit-300e_in1k.py
_base_ = 'vit-b-p16_8xb128-deit-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner')]))
