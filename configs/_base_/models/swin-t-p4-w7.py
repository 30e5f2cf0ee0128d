# Swin-T: blocks 2, 2, 6, 2 of width 96 to 768, windows of 7 x 7.
_base_ = 'classifier_of_mean.py'
model = dict(
    backbone=dict(type='vitplug.SwinTransformer', arch='tiny', img_size=224, drop_path_rate=0.2),
    head=dict(in_channels=768),
)
