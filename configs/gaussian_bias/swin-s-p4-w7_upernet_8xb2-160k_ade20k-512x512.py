# ADE20K segmentation with UPerNet on Swin-S.
# The paper's figures: mIoU 46.16, aAcc 81.82 (Table 4).
# python tools/train.py configs/gaussian_bias/swin-s-p4-w7_upernet_8xb2-160k_ade20k-512x512.py
_base_ = [
    '../_base_/models/upernet_swin-s-p4-w7.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/ade20k_160k.py',
    '../_base_/runtime_mmseg_ade20k.py',
]
