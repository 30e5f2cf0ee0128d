# ImageNet-1k classification with the host of Refined-ViT-S and Refiner, Refined-ViT-S.
# The paper's figures: top-1 83.6, 25 M parameters and 7.2 B FLOPs, perhaps with token labelling; ImageNet-ReaL top-1
# 88.3 (Table 7).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner_8xb64-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb64-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', share=1)]))
