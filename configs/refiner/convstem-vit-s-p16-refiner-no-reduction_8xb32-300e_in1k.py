# ImageNet-1k classification with the host of Refined-ViT-S and Refiner without reduction.
# The paper's figures: top-1 82.99 (Table 3).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-no-reduction_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', reduction=False, share=1)]))
