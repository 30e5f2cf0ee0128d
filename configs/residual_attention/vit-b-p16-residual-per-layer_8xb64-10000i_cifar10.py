# CIFAR-10 classification with ViT-B and residual attention with an alpha for every block.
# The paper's figures: as with one alpha (Section 5.2).
# python tools/train.py configs/residual_attention/vit-b-p16-residual-per-layer_8xb64-10000i_cifar10.py
# Pre-trained by: python tools/train.py configs/residual_attention/vit-b-p16-residual-per-layer_32xb128-300e_in1k.py
_base_ = 'vit-b-p16_8xb64-10000i_cifar10.py'
model = dict(
    backbone=dict(
        plugs=[dict(type='ResidualAttention', per_layer=True)],
        init_cfg=dict(checkpoint='work_dirs/vit-b-p16-residual-per-layer_32xb128-300e_in1k/epoch_300.pth', reset=[]),
    )
)
