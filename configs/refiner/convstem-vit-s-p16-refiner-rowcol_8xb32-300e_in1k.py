# ImageNet-1k classification with the host of Refined-ViT-S and Refiner with convolutions along rows and columns of the
# map.
# The paper's figures: top-1 81.7 (Table 4).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-rowcol_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', constraint='rowcol', share=1)]))
