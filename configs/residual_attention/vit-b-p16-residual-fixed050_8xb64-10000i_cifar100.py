# CIFAR-100 classification with ViT-B and residual attention with alpha fixed at 0.5.
# The paper's figures: drawn without printed values (Figure 9).
# python tools/train.py configs/residual_attention/vit-b-p16-residual-fixed050_8xb64-10000i_cifar100.py
# Pre-trained by: python tools/train.py configs/residual_attention/vit-b-p16-residual_32xb128-300e_in1k.py
_base_ = 'vit-b-p16-residual-fixed000_8xb64-10000i_cifar100.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention', alpha=0.5, learnable=False)]))
