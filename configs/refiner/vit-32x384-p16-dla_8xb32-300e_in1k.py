# ImageNet-1k classification with a ViT of 32 blocks and distributed local attention.
# The paper's figures: top-1 81.1 (Table 2).
# python tools/train.py configs/refiner/vit-32x384-p16-dla_8xb32-300e_in1k.py
_base_ = 'vit-32x384-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', expansion=0)]))
