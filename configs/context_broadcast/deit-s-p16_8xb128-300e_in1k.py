# ImageNet-1k classification with DeiT-S.
# The paper's figures: top-1 79.9, top-5 95.0; ImageNet-V2 top-1 68.1; ImageNet-ReaL top-1 85.7 (Table 6).
# python tools/train.py configs/context_broadcast/deit-s-p16_8xb128-300e_in1k.py
_base_ = ['../_base_/models/deit-s-p16.py', '../_base_/recipes/deit_in1k.py']
