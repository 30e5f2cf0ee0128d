# ImageNet-1k classification with ViT-B with a class token, which the classifier reads.
# python tools/train.py configs/residual_attention/vit-b-p16-cls_32xb128-300e_in1k.py
# Differs from vit-b-p16_32xb128-300e_in1k.py in: model.backbone.out_type, model.backbone.with_cls_token,
# model.head.type, model.neck.
_base_ = 'vit-b-p16_32xb128-300e_in1k.py'
model = dict(
    backbone=dict(with_cls_token=True, out_type='cls_token'), neck=None, head=dict(type='VisionTransformerClsHead')
)
