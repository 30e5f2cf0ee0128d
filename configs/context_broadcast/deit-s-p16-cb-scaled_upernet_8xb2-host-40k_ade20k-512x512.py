# ADE20K segmentation with UPerNet on DeiT-S and scaled Context Broadcasting, CB_S, from weights of the host without
# the plug.
# python tools/train.py configs/context_broadcast/deit-s-p16-cb-scaled_upernet_8xb2-host-40k_ade20k-512x512.py
# Differs from deit-s-p16-cb-scaled_upernet_8xb2-40k_ade20k-512x512.py in: model.backbone.init_cfg.checkpoint.
_base_ = 'deit-s-p16-cb-scaled_upernet_8xb2-40k_ade20k-512x512.py'
model = dict(backbone=dict(init_cfg=dict(checkpoint='checkpoints/deit_small_patch16_224-cd65a155.pth')))
