# ViT-B (R) from its ImageNet-1k weights, without Mixup, label smoothing and stochastic depth.
_base_ = 'vit-relpos-s-p16_finetune.py'
model = dict(
    backbone=dict(
        arch=dict(embed_dims=768, num_layers=12, num_heads=12, feedforward_channels=3072),
        init_cfg=dict(checkpoint='checkpoints/vit_relpos_base_patch16_224.safetensors'),
    ),
    head=dict(in_channels=768),
)
