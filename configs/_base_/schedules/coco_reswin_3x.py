# 36 epochs of AdamW on COCO with a linear decay to zero, as ReViT's section 4.2 says; 1000 iterations of warm-up.
_base_ = 'coco_3x.py'
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=1000),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=True, begin=0, end=36, convert_to_iter_based=True),
]
