# ImageNet-1k classification with PiT-B.
# The paper's figures: top-1 82.0 (Table 11).
# python tools/train.py configs/context_broadcast/pit-b-p14_8xb128-300e_in1k.py
_base_ = ['../_base_/models/pit-b-p14.py', '../_base_/recipes/deit_in1k.py']
