# ImageNet-1k classification with DeiT-S and broad attention, BViT-22M.
# The paper's figures: top-1 81.6 (Table III).
# python tools/train.py configs/broad_attention/deit-s-p16-broad_8xb64-300e_in1k.py
_base_ = 'deit-s-p16_8xb64-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
