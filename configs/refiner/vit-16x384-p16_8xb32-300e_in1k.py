# ImageNet-1k classification with a ViT of 16 blocks.
# The paper's figures: top-1 78.9 (Table 2 and Figure 2).
# python tools/train.py configs/refiner/vit-16x384-p16_8xb32-300e_in1k.py
_base_ = ['../_base_/models/vit-16x384-p16.py', '../_base_/recipes/refiner_in1k.py']
