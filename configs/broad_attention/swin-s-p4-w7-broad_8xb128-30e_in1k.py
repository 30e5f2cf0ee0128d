# ImageNet-1k fine-tuning of Swin-S and broad attention, BSwin-S.
# The paper's figures: top-1 84.2 (Table V).
# python tools/train.py configs/broad_attention/swin-s-p4-w7-broad_8xb128-30e_in1k.py
_base_ = 'swin-s-p4-w7_8xb128-30e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
