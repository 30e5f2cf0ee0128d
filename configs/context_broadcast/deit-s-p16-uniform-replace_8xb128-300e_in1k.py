# ImageNet-1k classification with DeiT-S and a head of uniform attention instead of one of its heads.
# The paper's figures: top-1 80.1, 21 M parameters (Table 1).
# python tools/train.py configs/context_broadcast/deit-s-p16-uniform-replace_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='UniformHead')]))
