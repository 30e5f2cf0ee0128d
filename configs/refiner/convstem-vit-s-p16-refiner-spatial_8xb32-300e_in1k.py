# ImageNet-1k classification with the host of Refined-ViT-S and Refiner with a convolution over the image.
# The paper's figures: top-1 82.7 (Table 4).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-spatial_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', constraint='spatial', share=1)]))
