# Garment classification with mmpretrain's own ViT, for the fine-tuning with plugs.
# Differs from vit-mini-p4_1xb64-1500i_fashion-28x28.py in: model.backbone.type.
# python tools/train.py configs/fashion/stock-vit-mini-p4_1xb64-1500i_fashion-28x28.py
_base_ = 'vit-mini-p4_1xb64-1500i_fashion-28x28.py'
model = dict(backbone=dict(type='mmpretrain.VisionTransformer'))
