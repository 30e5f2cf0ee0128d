# ADE20K segmentation with UPerNet on DeiT-S, gated attention and four registers.
# python tools/train.py configs/further/deit-s-p16-gate-registers_upernet_8xb2-160k_ade20k-512x512.py
_base_ = 'deit-s-p16_upernet_8xb2-160k_ade20k-512x512.py'
model = dict(backbone=dict(plugs=[dict(type='GatedAttention'), dict(type='Registers', num_registers=4)]))
