# ImageNet-1k classification with the host of Refined-ViT-M and Refiner, Refined-ViT-M.
# The paper's figures: top-1 84.6, with token labelling.
# python tools/train.py configs/refiner/convstem-vit-m-p16-refiner_8xb64-300e_in1k.py
_base_ = 'convstem-vit-m-p16_8xb64-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', share=1)]))
