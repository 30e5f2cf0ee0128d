# LVT: blocks 2, 2, 2, 2 of width 64 to 256, two class-attention blocks, and classifiers of the class token and of all
# other tokens.
model = dict(
    type='vitplug.TokenLabelClassifier',
    backbone=dict(type='vitplug.LVT', arch='lvt', img_size=224, out_type='raw'),
    head=dict(
        type='vitplug.TokenLabelHead',
        num_classes=1000,
        in_channels=256,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
)
