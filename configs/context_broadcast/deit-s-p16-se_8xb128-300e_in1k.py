# ImageNet-1k classification with DeiT-S and squeeze-and-excitation after the MLP.
# The paper's figures: top-1 80.3 (Table 3).
# python tools/train.py configs/context_broadcast/deit-s-p16-se_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='SqueezeExcite')]))
