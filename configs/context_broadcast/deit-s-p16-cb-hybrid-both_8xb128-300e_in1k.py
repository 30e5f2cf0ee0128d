# ImageNet-1k classification with DeiT-S and Context Broadcasting after self-attention and after the MLP, every token
# gated by the class token on top.
# The paper's figures: its training failed (Table 13).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-hybrid-both_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', mode='hybrid', position=['msa', 'mlp_end'])]))
