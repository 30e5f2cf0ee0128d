# ImageNet-1k fine-tuning of Swin-T and broad attention, BSwin-T.
# The paper's figures: top-1 82.0 (Table V).
# python tools/train.py configs/broad_attention/swin-t-p4-w7-broad_8xb128-30e_in1k.py
_base_ = 'swin-t-p4-w7_8xb128-30e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
