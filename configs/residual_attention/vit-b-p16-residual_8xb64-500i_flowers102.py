# Flowers-102 classification with ViT-B and residual attention, ReViT-B.
# python tools/train.py configs/residual_attention/vit-b-p16-residual_8xb64-500i_flowers102.py
# Pre-trained by: python tools/train.py configs/residual_attention/vit-b-p16-residual_32xb128-300e_in1k.py
_base_ = 'vit-b-p16_8xb64-500i_flowers102.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='ResidualAttention')],
        init_cfg=dict(checkpoint='work_dirs/vit-b-p16-residual_32xb128-300e_in1k/epoch_300.pth', reset=[]),
    )
)
