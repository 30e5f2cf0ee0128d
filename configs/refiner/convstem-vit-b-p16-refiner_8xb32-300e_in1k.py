# ImageNet-1k classification with ViT-B behind a convolutional stem and Refiner.
# The paper's figures: top-1 83.1, 86 M parameters (Tables 9 and 11).
# python tools/train.py configs/refiner/convstem-vit-b-p16-refiner_8xb32-300e_in1k.py
_base_ = 'convstem-vit-b-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', share=1)]))
