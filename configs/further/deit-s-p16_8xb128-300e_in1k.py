# ImageNet-1k classification with DeiT-S, as of Context Broadcasting.
# The paper's figures: top-1 80.4, DeiT-III-S of 400 epochs.
# python tools/train.py configs/further/deit-s-p16_8xb128-300e_in1k.py
_base_ = '../context_broadcast/deit-s-p16_8xb128-300e_in1k.py'
