# ImageNet-1k classification with the host of Refined-ViT-S, each map of plain attention reused by 2 blocks.
# The paper's figures: top-1 70 (Table 13).
# python tools/train.py configs/refiner/convstem-vit-s-p16-share2_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', mode='none', share=2)]))
