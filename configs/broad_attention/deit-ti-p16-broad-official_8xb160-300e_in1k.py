# ImageNet-1k classification with DeiT-Ti and broad attention with scale and gamma of BViT's code.
# python tools/train.py configs/broad_attention/deit-ti-p16-broad-official_8xb160-300e_in1k.py
_base_ = 'deit-ti-p16_8xb160-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention', gamma=0.4, scale='head')]))
