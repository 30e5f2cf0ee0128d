# ImageNet-1k classification with a distilled DeiT-B.
# The paper's figures: top-1 83.4, top-5 96.4; ImageNet-V2 top-1 72.2; ImageNet-ReaL top-1 88.1 (Table 6).
# python tools/train.py configs/context_broadcast/deit-b-distilled-p16_8xb128-300e_in1k.py
_base_ = ['../_base_/models/deit-b-distilled-p16.py', '../_base_/recipes/deit_in1k.py']
