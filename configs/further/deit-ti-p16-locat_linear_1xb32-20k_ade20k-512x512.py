# ADE20K segmentation with a linear head on a frozen DeiT-Ti with LocAt.
# python tools/train.py configs/further/deit-ti-p16-locat_linear_1xb32-20k_ade20k-512x512.py
# Pre-trained by: python tools/train.py configs/further/deit-ti-p16-locat_8xb128-linear-300e_in1k.py
_base_ = 'deit-ti-p16_linear_1xb32-20k_ade20k-512x512.py'
# Refined patches are of classifiers: the head reads the tokens before them.
model = dict(
    backbone=dict(
        plugs=[dict(type='GaussianAugment', scheme='official')],
        init_cfg=dict(checkpoint='work_dirs/deit-ti-p16-locat_8xb128-linear-300e_in1k/epoch_300.pth'),
    )
)
