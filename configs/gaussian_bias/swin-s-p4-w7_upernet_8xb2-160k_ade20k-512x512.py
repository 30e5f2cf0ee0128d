# ADE20K segmentation with UPerNet on Swin-S.
# The paper's figures: mIoU 46.16, aAcc 81.82 (Table 4).
# python tools/train.py configs/gaussian_bias/swin-s-p4-w7_upernet_8xb2-160k_ade20k-512x512.py
_base_ = '../_base_/ade20k_160k.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.SwinTransformer',
        arch='small',
        drop_path_rate=0.3,
        out_indices=(0, 1, 2, 3),
        pad_small_map=True,
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/swin_small_patch4_window7_224.pth'),
    ),
)
