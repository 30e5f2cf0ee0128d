# Digit classification with a small ViT and broad attention.
# python tools/train.py configs/digits/vit-mini-p4-broad_1xb32-14e_digits-32x32.py
_base_ = 'vit-mini-p4_1xb32-14e_digits-32x32.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
