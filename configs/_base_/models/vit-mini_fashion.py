# The small ViT for images of 28 x 28: 7 x 7 tokens of 4 x 4 pixels.
_base_ = 'vit-mini_classifier.py'
model = dict(
    data_preprocessor=dict(mean=[73.0], std=[90.0]),
    backbone=dict(img_size=28),
    neck=dict(in_channels=96 * 7 * 7, out_channels=64),
    head=dict(in_channels=64),
)
