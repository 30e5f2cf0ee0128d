# The ViT of the evidence, with the plug of this study.
_base_ = '../../../../configs/fashion/vit-mini-p4_1xb64-1500i_fashion-28x28.py'
custom_imports = dict(imports=['halving'])
