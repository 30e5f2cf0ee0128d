# ImageNet-1k classification with the host of Refined-ViT-S, with 8 heads, and Refiner.
# The paper's figures: top-1 82.5 (Table 12).
# python tools/train.py configs/refiner/convstem-vit-s-h8-p16-refiner_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-h8-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', share=1)]))
