# ImageNet-1k classification with MViTv2-T and residual attention as in ReMViTv2's code: relative positions are handed
# on with the scores, and alpha may leave [0, 1]. The weight decay is the code's 0.05.
# python tools/train.py configs/residual_attention/mvitv2-t-residual-official_8xb256-300e_in1k.py
_base_ = 'mvitv2-t_8xb256-wd005-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention', constraint='none', bias_mode='after_carried')]))
