# ImageNet-1k classification with DeiT-B.
# The paper's figures: top-1 81.8, top-5 95.6; ImageNet-V2 top-1 70.5; ImageNet-ReaL top-1 86.7 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-p16_8xb128-300e_in1k.py
_base_ = ['../_base_/models/deit-b-p16.py', '../_base_/recipes/deit_in1k.py']
