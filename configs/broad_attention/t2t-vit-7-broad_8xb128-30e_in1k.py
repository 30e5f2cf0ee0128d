# ImageNet-1k fine-tuning of T2T-ViT-7 and broad attention, BT2T-ViT-7.
# The paper's figures: top-1 73.4 (Table V).
# python tools/train.py configs/broad_attention/t2t-vit-7-broad_8xb128-30e_in1k.py
_base_ = 't2t-vit-7_8xb128-30e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
