# Digit classification with a small T2T-ViT and broad attention.
# python tools/train.py configs/digits/t2t-mini-broad_1xb32-14e_digits-64x64.py
_base_ = 't2t-mini_1xb32-14e_digits-64x64.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
