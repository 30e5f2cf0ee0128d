# ImageNet-1k classification with Refined-ViT-S as in its official code, and the code's loss on similar attention maps.
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-official-diverse_8xb64-300e_in1k.py
_base_ = 'convstem-vit-s-p16-refiner-official_8xb64-300e_in1k.py'
# The 6 pairs of blocks with a gradient among the 12 of the code, of which each counts 0.1 / 12.
model = dict(type='vitplug.DiverseClassifier', diversity=dict(weight=0.05, layers=[0, 2, 4, 6, 8, 10, 12]))
