# ImageNet-1k classification with the host of Refined-ViT-S and Refiner, each refined map reused by 3 blocks.
# The paper's figures: top-1 82.6 (Table 13).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-share3_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', share=3)]))
