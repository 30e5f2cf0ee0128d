# ImageNet-1k classification with a distilled DeiT-Ti.
# The paper's figures: top-1 74.5, top-5 91.9; ImageNet-V2 top-1 62.4; ImageNet-ReaL top-1 82.1 (Table 6).
# python tools/train.py configs/context_broadcast/deit-ti-distilled-p16_8xb128-300e_in1k.py
_base_ = ['../_base_/models/deit-ti-distilled-p16.py', '../_base_/recipes/deit_in1k.py']
