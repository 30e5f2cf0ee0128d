# ImageNet-1k classification with DeiT-S and Context Broadcasting after self-attention, every token gated by the class
# token.
# The paper's figures: top-1 80.0, top-5 95.0 (Table 13).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-gate-msa_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', mode='gate', position='msa')]))
