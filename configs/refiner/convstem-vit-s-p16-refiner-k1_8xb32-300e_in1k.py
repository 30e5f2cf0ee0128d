# ImageNet-1k classification with the host of Refined-ViT-S and Refiner with a kernel of 1 x 1.
# The paper's figures: drawn, not printed (Figure 6).
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-k1_8xb32-300e_in1k.py
_base_ = 'convstem-vit-s-p16_8xb32-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='Refiner', kernel_size=1, share=1)]))
