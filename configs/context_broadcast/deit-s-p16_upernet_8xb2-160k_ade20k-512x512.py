# ADE20K segmentation with UPerNet on DeiT-S.
# The paper's figures: mIoU 43.3 (Table 7).
# python tools/train.py configs/context_broadcast/deit-s-p16_upernet_8xb2-160k_ade20k-512x512.py
_base_ = '../_base_/models/upernet_deit.py'
