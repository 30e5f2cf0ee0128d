# ImageNet-1k classification with the host of Refined-ViT-S and Refiner with expansion 6.
# The paper's figures: top-1 83.0, 25 M parameters, converged at epoch 261 (Table 1).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-r6_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', expansion=6, share=1)]))
