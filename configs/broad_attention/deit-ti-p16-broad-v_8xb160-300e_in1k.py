# ImageNet-1k classification with DeiT-Ti and broad attention over the values of all blocks and the queries and keys of
# the last one.
# The paper's figures: top-1 74.2 (Table II).
# python tools/train.py configs/broad_attention/deit-ti-p16-broad-v_8xb160-300e_in1k.py
_base_ = 'deit-ti-p16_8xb160-300e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention', use_qk=False)]))
