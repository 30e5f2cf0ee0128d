# MViTv2-T: blocks 1, 2, 5, 2 of width 96 to 768. Queries, keys and values are pooled; stages begin at every half side.
_base_ = 'classifier_of_mean.py'
model = dict(
    backbone=dict(type='vitplug.MViT', arch='tiny', img_size=224, drop_path_rate=0.1), head=dict(in_channels=768)
)
