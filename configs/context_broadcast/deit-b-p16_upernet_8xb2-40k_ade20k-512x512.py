# ADE20K segmentation with UPerNet on DeiT-B.
# The paper's figures: mIoU 44.3 (Table 7).
# python tools/train.py configs/context_broadcast/deit-b-p16_upernet_8xb2-40k_ade20k-512x512.py
_base_ = [
    '../_base_/models/upernet_deit-b-p16.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/ade20k_40k.py',
    '../_base_/runtime_mmseg_ade20k.py',
]
