# ImageNet-1k classification with DeiT-Ti.
# The paper's figures: top-1 72.2, top-5 91.1; ImageNet-V2 top-1 59.9; ImageNet-ReaL top-1 80.1 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-p16_8xb128-300e_in1k.py
_base_ = ['../_base_/models/deit-ti-p16.py', '../_base_/recipes/deit_in1k.py']
