# ImageNet-1k fine-tuning of LVT and broad attention, BLVT, with token labels and MixToken.
# The paper's figures: top-1 76.0 (Table V).
# python tools/train.py configs/broad_attention/lvt-broad_8xb128-30e_in1k.py
_base_ = 'lvt_8xb128-30e_in1k.py'
model = dict(backbone=dict(plugs=[dict(type='BroadAttention')]))
