# ImageNet-1k classification with the host of Refined-ViT-S and Refiner as in its official code.
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-official_8xb64-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb64-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', scheme='official', mode='mbconv', init='default', share=1)]))
