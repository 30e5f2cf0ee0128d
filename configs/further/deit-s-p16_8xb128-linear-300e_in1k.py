# ImageNet-1k classification with DeiT-S, by the recipe of LocAt.
# python tools/train.py configs/further/deit-s-p16_8xb128-linear-300e_in1k.py
_base_ = 'deit-ti-p16_8xb128-linear-300e_in1k.py'
model = dict(backbone=dict(arch='deit-s', drop_path_rate=0.2), head=dict(in_channels=384))
