# Digit classification with a small LVT and broad attention.
# python tools/train.py configs/digits/lvt-mini-broad_1xb32-14e_digits-32x32.py
_base_ = 'lvt-mini_1xb32-14e_digits-32x32.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
