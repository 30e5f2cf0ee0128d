# ADE20K segmentation with UPerNet on Swin-S.
# The paper's figures: mIoU 46.16, aAcc 81.82 (Table 4).
# python tools/train.py configs/gaussian_bias/swin-s-p4-w7_upernet_8xb2-160k_ade20k-512x512.py
_base_ = '../_base_/ade20k_160k.py'
model = dict(
    backbone=dict(
        type='vitplug.SwinTransformer',
        depths=[2, 2, 18, 2],
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/swin_small_patch4_window7_224.pth'),
    ),
)
