# ViT-M (R) from its ImageNet-1k weights, without Mixup, label smoothing and stochastic depth.
_base_ = 'vit-relpos-s-p16_finetune.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=512, num_layers=12, num_heads=8, feedforward_channels=2048),
        init_cfg=dict(checkpoint='checkpoints/vit_relpos_medium_patch16_224.safetensors'),
    ),
    head=dict(in_channels=512),
)
