# ADE20K segmentation with UPerNet on DeiT-S, as of Context Broadcasting.
# python tools/train.py configs/further/deit-s-p16_upernet_8xb2-160k_ade20k-512x512.py
_base_ = '../context_broadcast/deit-s-p16_upernet_8xb2-160k_ade20k-512x512.py'
