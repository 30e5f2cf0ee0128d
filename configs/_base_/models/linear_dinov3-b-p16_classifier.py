# A linear classifier on the normalised class token of frozen DINOv3-B/16. The head starts from zero.
_base_ = 'dinov3-b-p16.py'
model = dict(
    type='ImageClassifier',
    backbone=dict(_base_.pop('dinov3'), frozen='host'),
    neck=None,
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        in_channels=768,
        loss=dict(type='CrossEntropyLoss'),
        init_cfg=dict(type='Constant', layer='Linear', val=0.0),
    ),
)
