# ImageNet-1k classification with a ViT of 16 blocks and Refiner with a kernel of 5 x 5.
# python tools/train.py configs/refiner/vit-16x384-p16-refiner-k5_8xb32-300e_in1k.py
_base_ = 'vit-16x384-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', kernel_size=5)]))
