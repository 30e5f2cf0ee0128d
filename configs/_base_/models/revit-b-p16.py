# ViT-B as ReViT-B's host: no class token; the classifier gets the mean of the normalised tokens.
_base_ = 'deit-b-p16.py'
model = dict(
    backbone=dict(with_cls_token=False, out_type='featmap'),
    neck=dict(_delete_=True, type='GlobalAveragePooling'),
    head=dict(type='LinearClsHead'),
)
