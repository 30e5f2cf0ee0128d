# A deep and narrow ViT of 24 blocks.
_base_ = 'vit-16x384-p16.py'
model = dict(backbone=dict(arch=dict(num_layers=24)))
