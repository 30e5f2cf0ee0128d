# ImageNet-1k classification with DeiT-S and Context Broadcasting before the first layer of the MLP, every token gated
# by the class token.
# The paper's figures: top-1 80.3, top-5 94.9 (Table 14).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-gate-front_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', mode='gate', position='mlp_front')]))
