# Oxford-IIIT Pet classification with ViT-M (R).
# The paper's figures: top-1 92.810 (Table 3).
# python tools/train.py configs/gaussian_bias/vit-relpos-m-p16_1xb128-200e_pets.py
_base_ = 'vit-relpos-s-p16_1xb128-200e_pets.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=512, num_layers=12, num_heads=8, feedforward_channels=2048),
        init_cfg=dict(checkpoint='checkpoints/vit_relpos_medium_patch16_224.safetensors'),
    ),
    head=dict(in_channels=512),
)
