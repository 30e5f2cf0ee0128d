# ImageNet-1k classification with MViTv2-T and residual attention, ReMViTv2-T, with the weight decay of its code.
# python tools/train.py configs/residual_attention/mvitv2-t-residual_8xb256-wd005-300e_in1k.py
_base_ = 'mvitv2-t_8xb256-wd005-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
