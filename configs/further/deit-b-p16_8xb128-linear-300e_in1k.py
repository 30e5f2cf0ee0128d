# ImageNet-1k classification with DeiT-B, by the recipe of LocAt.
# python tools/train.py configs/further/deit-b-p16_8xb128-linear-300e_in1k.py
_base_ = 'deit-ti-p16_8xb128-linear-300e_in1k.py'
model = dict(backbone=dict(arch='deit-b', drop_path_rate=0.4), head=dict(in_channels=768))
