# ImageNet-1k classification with DeiT-S and Context Broadcasting after the activation of the MLP, every token gated by
# the class token on top.
# The paper's figures: top-1 80.1, top-5 95.1 (Table 14).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-hybrid-mid_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', mode='hybrid', position='mlp_mid')]))
