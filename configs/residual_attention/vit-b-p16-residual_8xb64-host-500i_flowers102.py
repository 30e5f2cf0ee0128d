# Flowers-102 classification with ViT-B and residual attention, ReViT-B, from weights of the host without the plug.
# python tools/train.py configs/residual_attention/vit-b-p16-residual_8xb64-host-500i_flowers102.py
# Differs from vit-b-p16-residual_8xb64-500i_flowers102.py in: model.backbone.init_cfg.checkpoint,
# model.backbone.init_cfg.reset.
_base_ = 'vit-b-p16-residual_8xb64-500i_flowers102.py'
model = dict(
    backbone=dict(init_cfg=dict(checkpoint='checkpoints/deit_base_patch16_224-b5f2ef4d.pth', reset=['cls_token']))
)
