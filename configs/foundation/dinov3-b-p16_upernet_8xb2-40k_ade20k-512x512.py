# ADE20K segmentation with UPerNet on frozen DINOv3-B features.
# python tools/train.py configs/foundation/dinov3-b-p16_upernet_8xb2-40k_ade20k-512x512.py
_base_ = [
    '../_base_/models/upernet_dinov3-b-p16.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/ade20k_linear_40k.py',
    '../_base_/runtime_mmseg_ade20k.py',
]
