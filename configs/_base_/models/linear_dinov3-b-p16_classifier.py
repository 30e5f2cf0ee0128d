# A linear classifier on the normalised class token of frozen DINOv3-B/16. The head starts from zero.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='vitplug.FoundationTransformer',
        arch='dinov3-b',
        frozen='host',
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/dinov3_vitb16_pretrain_lvd1689m-73cec8be.pth'),
    ),
    neck=None,
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        in_channels=768,
        loss=dict(type='CrossEntropyLoss'),
        init_cfg=dict(type='Constant', layer='Linear', val=0.0),
    ),
)
