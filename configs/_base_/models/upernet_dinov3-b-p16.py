# UPerNet on frozen DINOv3-B/16 features: the maps after blocks 3, 6, 9 and 12 become a pyramid. Tests are cut into
# windows as in linear_dinov3-b-p16.py.
_base_ = ['upernet.py', 'dinov3-b-p16.py']
model = dict(
    backbone=dict(
        _base_.pop('dinov3'),
        img_size=512,
        out_type='featmap',
        frozen='host',
        out_indices=[2, 5, 8, 11],
        final_norm=False,
    ),
    neck=dict(type='Feature2Pyramid', embed_dim=768, rescales=[4, 2, 1, 0.5], norm_cfg=_base_.norm_cfg),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)
