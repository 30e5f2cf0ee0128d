# ImageNet-1k classification with a ViT of 24 blocks and distributed local attention.
# The paper's figures: top-1 80.9 (Table 2).
# python tools/train.py configs/refiner/vit-24x384-p16-dla_8xb32-300e_in1k.py
_base_ = 'vit-24x384-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', expansion=0)]))
