# ImageNet-1k classification with ReViT-B as in its code: no class token, an alpha that may leave [0, 1].
# python tools/train.py configs/residual_attention/vit-b-p16-residual-official_32xb128-300e_in1k.py
# Differs from vit-b-p16_32xb128-300e_in1k.py in: model.backbone.out_type, model.backbone.plugs,
# model.backbone.with_cls_token, model.head.type, model.neck.
_base_ = [
    '../_base_/models/deit-b-p16.py',
    '../_base_/datasets/imagenet_bs128_revit_224.py',
    '../_base_/schedules/revit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# The classifier gets the mean of the normalised tokens.
model = dict(
    backbone=dict(
        drop_path_rate=0.2,
        with_cls_token=False,
        out_type='featmap',
        plugs=[dict(type='ResidualAttention', constraint='none')],
    ),
    neck=dict(_delete_=True, type='GlobalAveragePooling'),
    head=dict(type='LinearClsHead'),
    train_cfg=None,
)
