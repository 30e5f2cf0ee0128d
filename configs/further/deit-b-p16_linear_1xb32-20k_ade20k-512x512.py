# ADE20K segmentation with a linear head on a frozen DeiT-B, by the recipe of LocAt.
# python tools/train.py configs/further/deit-b-p16_linear_1xb32-20k_ade20k-512x512.py
# Pre-trained by: python tools/train.py configs/further/deit-b-p16_8xb128-linear-300e_in1k.py
_base_ = 'deit-ti-p16_linear_1xb32-20k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        arch='deit-b', init_cfg=dict(checkpoint='work_dirs/deit-b-p16_8xb128-linear-300e_in1k/epoch_300.pth')
    ),
    decode_head=dict(in_channels=768),
)
