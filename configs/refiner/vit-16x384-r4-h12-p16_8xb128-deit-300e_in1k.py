# ImageNet-1k classification with CaiT's ViT-S of 16 blocks, with 12 heads, and DeiT's recipe.
# The paper's figures: top-1 80.0 (Table 12 (from the CaiT paper)).
# python tools/train.py configs/refiner/vit-16x384-r4-h12-p16_8xb128-deit-300e_in1k.py
_base_ = 'vit-16x384-p16_8xb128-deit-300e_in1k.py'
model = dict(backbone=dict(arch=dict(feedforward_channels=1536)))
