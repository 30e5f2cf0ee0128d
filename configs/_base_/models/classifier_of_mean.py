# A classifier of the mean over the last map. Linear layers and norms are initialised as in DeiT.
_base_ = 'classifier.py'
model = dict(
    neck=dict(_delete_=True, type='GlobalAveragePooling'),
    head=dict(type='LinearClsHead'),
    init_cfg=[
        dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
        dict(type='Constant', layer='LayerNorm', val=1.0, bias=0.0),
    ],
)
