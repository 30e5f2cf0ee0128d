# DeiT-S: 12 blocks, width 384, 6 heads, a class token. Linear layers are initialised as in DeiT; mmpretrain's defaults
# differ for MLPs (Xavier) and heads (zeros).
_base_ = 'classifier.py'
model = dict(
    backbone=dict(
        type='vitplug.VisionTransformer',
        arch='deit-s',
        img_size=224,
        patch_size=16,
        drop_path_rate=0.1,
        layer_cfgs=dict(init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0)),
    ),
    head=dict(in_channels=384),
    init_cfg=[
        dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
        dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
    ],
)
