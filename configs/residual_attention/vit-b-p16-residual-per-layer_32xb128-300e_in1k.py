# ImageNet-1k classification with ViT-B and residual attention with an alpha for every block.
# python tools/train.py configs/residual_attention/vit-b-p16-residual-per-layer_32xb128-300e_in1k.py
_base_ = 'vit-b-p16_32xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention', per_layer=True)]))
