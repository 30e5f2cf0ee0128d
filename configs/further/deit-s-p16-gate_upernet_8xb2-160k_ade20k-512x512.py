# ADE20K segmentation with UPerNet on DeiT-S and gated attention.
# python tools/train.py configs/further/deit-s-p16-gate_upernet_8xb2-160k_ade20k-512x512.py
_base_ = 'deit-s-p16_upernet_8xb2-160k_ade20k-512x512.py'
model = dict(backbone=dict(plugs=[dict(type='GatedAttention')]))
