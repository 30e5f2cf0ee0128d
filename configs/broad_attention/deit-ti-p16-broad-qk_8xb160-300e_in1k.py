# ImageNet-1k classification with DeiT-Ti and broad attention over the queries and keys of all blocks and the values of
# the last one.
# The paper's figures: top-1 74.4 (Table II).
# python tools/train.py configs/broad_attention/deit-ti-p16-broad-qk_8xb160-300e_in1k.py
_base_ = 'deit-ti-p16_8xb160-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention', use_v=False)]))
