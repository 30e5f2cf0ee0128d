# Stanford Dogs classification with ViT-B (R).
# The paper's figures: top-1 89.256 (Table 3).
# python tools/train.py configs/gaussian_bias/vit-relpos-b-p16_1xb128-200e_dogs.py
_base_ = 'vit-relpos-s-p16_1xb128-200e_dogs.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072),
        init_cfg=dict(checkpoint='checkpoints/vit_relpos_base_patch16_224.safetensors'),
    ),
    head=dict(in_channels=768),
)
