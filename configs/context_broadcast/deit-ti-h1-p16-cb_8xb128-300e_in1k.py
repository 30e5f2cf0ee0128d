# ImageNet-1k classification with DeiT-Ti, with one head instead of 3, and Context Broadcasting.
# The paper's figures: drawn without printed values (Figure 7).
# python tools/train.py configs/context_broadcast/deit-ti-h1-p16-cb_8xb128-300e_in1k.py
# Differs from deit-ti-p16-cb_8xb128-300e_in1k.py in: model.backbone.arch.num_heads.
_base_ = 'deit-ti-p16-cb_8xb128-300e_in1k.py'
model = dict(backbone=dict(arch=dict(num_heads=1)))
