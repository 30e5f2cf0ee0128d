# ImageNet-1k classification with 8 blocks of DeiT-Ti followed by one more self-attention.
# The paper's figures: curves without printed values (Figure 2).
# python tools/train.py configs/context_broadcast/vit-8x192-msa-p16_8xb128-300e_in1k.py
_base_ = ['../_base_/models/deit-ti-p16.py', '../_base_/recipes/deit_in1k.py']
block = _base_.model.backbone.layer_cfgs
model = dict(backbone=dict(arch=dict(num_layers=9), layer_cfgs=[*[block] * 8, dict(block, with_ffn=False)]))
