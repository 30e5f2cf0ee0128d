# ImageNet-1k classification with Swin-T and residual attention as in ReSwin's code.
# python tools/train.py configs/residual_attention/swin-t-p4-w7-residual-official_8xb128-300e_in1k.py
_base_ = 'swin-t-p4-w7_8xb128-300e_in1k.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='ResidualAttention', learnable=False, bias_mode='blend', stage_transition='flat_nearest')]
    )
)
