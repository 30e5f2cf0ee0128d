# ImageNet-1k classification with the host of Refined-ViT-S and Refiner with expansion 4.
# The paper's figures: top-1 82.9, 25 M parameters, converged at epoch 270 (Table 1).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-r4_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', expansion=4, share=1)]))
