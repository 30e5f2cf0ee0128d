# ImageNet-1k classification with ViT-B and distributed local attention.
# The paper's figures: top-1 81.2 (Table 2).
# python tools/train.py configs/refiner/vit-b-p16-dla_8xb32-300e_in1k.py
_base_ = 'vit-b-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', expansion=0)]))
