# DeiT-B, which is ViT-B: 12 blocks, width 768, 12 heads.
_base_ = 'deit-s-p16.py'
model = dict(backbone=dict(arch='deit-b'), head=dict(in_channels=768))
