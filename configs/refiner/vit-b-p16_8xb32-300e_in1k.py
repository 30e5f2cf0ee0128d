# ImageNet-1k classification with ViT-B.
# The paper's figures: top-1 79.5 (Table 2); top-1 79.3 (Table 11).
# python tools/train.py configs/refiner/vit-b-p16_8xb32-300e_in1k.py
_base_ = ['../_base_/models/deit-b-p16.py', '../_base_/recipes/refiner_in1k.py']
model = dict(train_cfg=dict(augments=[dict(type='Mixup', alpha=0.2)]))
