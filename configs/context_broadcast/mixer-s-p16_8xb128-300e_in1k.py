# ImageNet-1k classification with Mixer-S/16.
# The paper's figures: top-1 74.3 (Table 11).
# python tools/train.py configs/context_broadcast/mixer-s-p16_8xb128-300e_in1k.py
_base_ = ['../_base_/models/mixer-s-p16.py', '../_base_/recipes/deit_in1k.py']
