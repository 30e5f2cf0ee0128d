# The ViT of the evidence with a class token as the classifier's input.
_base_ = '../../../../configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py'
model = dict(backbone=dict(with_cls_token=True, out_type='cls_token'), neck=dict(in_channels=96))
