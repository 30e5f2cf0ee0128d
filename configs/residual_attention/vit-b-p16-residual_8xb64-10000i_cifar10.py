# CIFAR-10 classification with ViT-B and residual attention, ReViT-B.
# The paper's figures: 0.6 points above ViT-B, the smallest gain of the four data sets (Section 4.3).
# python tools/train.py configs/residual_attention/vit-b-p16-residual_8xb64-10000i_cifar10.py
_base_ = 'vit-b-p16_8xb64-10000i_cifar10.py'
model = dict(backbone=dict(plugs=[dict(type='ResidualAttention')]))
