# ImageNet-1k classification with DeiT-Ti and broad attention, BViT-5M.
# The paper's figures: top-1 75.0 (Table III).
# python tools/train.py configs/broad_attention/deit-ti-p16-broad_8xb160-300e_in1k.py
_base_ = 'deit-ti-p16_8xb160-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
