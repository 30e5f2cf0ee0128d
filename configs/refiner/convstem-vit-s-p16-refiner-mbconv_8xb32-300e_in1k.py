# ImageNet-1k classification with the host of Refined-ViT-S and Refiner as a bottleneck with batch norms, as in its
# code.
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-mbconv_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', mode='mbconv', init='default', share=1)]))
