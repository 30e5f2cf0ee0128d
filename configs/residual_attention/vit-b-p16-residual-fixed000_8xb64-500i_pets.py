# Oxford-IIIT Pet classification with ViT-B and residual attention with alpha fixed at 0.0.
# The paper's figures: drawn without printed values (Figure 9).
# python tools/train.py configs/residual_attention/vit-b-p16-residual-fixed000_8xb64-500i_pets.py
_base_ = 'vit-b-p16_8xb64-500i_pets.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention', alpha=0.0, learnable=False)]))
