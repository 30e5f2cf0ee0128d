# ImageNet-1k classification with a ViT of 16 blocks and Refiner, its maps being expanded twofold.
# The paper's figures: top-1 82.8.
# python tools/train.py configs/refiner/vit-16x384-p16-refiner-r2_8xb32-300e_in1k.py
_base_ = 'vit-16x384-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', expansion=2)]))
