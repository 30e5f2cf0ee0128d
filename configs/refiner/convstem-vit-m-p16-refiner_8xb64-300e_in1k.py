# ImageNet-1k classification with the host of Refined-ViT-M and Refiner, Refined-ViT-M.
# The paper's figures: top-1 84.6, 55 M parameters and 13.5 B FLOPs, perhaps with token labelling; ImageNet-ReaL top-1
# 88.9 (Table 7).
# python tools/train.py configs/refiner/convstem-vit-m-p16-refiner_8xb64-300e_in1k.py
_base_ = 'convstem-vit-m-p16_8xb64-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', share=1)]))
