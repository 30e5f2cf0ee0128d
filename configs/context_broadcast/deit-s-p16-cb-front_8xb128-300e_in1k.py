# ImageNet-1k classification with DeiT-S and Context Broadcasting before the first layer of the MLP.
# The paper's figures: top-1 79.9, top-5 94.8 (Table 14).
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-front_8xb128-300e_in1k.py
_base_ = 'deit-s-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='ContextBroadcast', position='mlp_front')]))
