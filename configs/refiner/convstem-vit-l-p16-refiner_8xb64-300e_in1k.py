# ImageNet-1k classification with the host of Refined-ViT-L and Refiner, Refined-ViT-L.
# The paper's figures: top-1 84.9, 81 M parameters and 19.1 B FLOPs, perhaps with token labelling; ImageNet-ReaL top-1
# 89.1 (Table 7).
# python tools/train.py configs/refiner/convstem-vit-l-p16-refiner_8xb64-300e_in1k.py
_base_ = 'convstem-vit-l-p16_8xb64-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', share=1)]))
