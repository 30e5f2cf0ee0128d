# ImageNet-1k classification with DeiT-S and LocAt: a Gaussian that each query chooses, and refined patches.
# python tools/train.py configs/further/deit-s-p16-locat_8xb128-linear-300e_in1k.py
_base_ = 'deit-s-p16_8xb128-linear-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='GaussianAugment', scheme='official'), dict(type='PatchRefinement')]))
