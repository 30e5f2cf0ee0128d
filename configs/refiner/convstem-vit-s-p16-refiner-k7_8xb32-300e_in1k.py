# ImageNet-1k classification with the host of Refined-ViT-S and Refiner with a kernel of 7 x 7.
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-k7_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', kernel_size=7, share=1)]))
