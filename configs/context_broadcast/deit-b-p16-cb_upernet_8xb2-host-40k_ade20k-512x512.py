# ADE20K segmentation with UPerNet on DeiT-B and Context Broadcasting, from weights of the host without the plug.
# python tools/train.py configs/context_broadcast/deit-b-p16-cb_upernet_8xb2-host-40k_ade20k-512x512.py
# Differs from deit-b-p16-cb_upernet_8xb2-40k_ade20k-512x512.py in: model.backbone.init_cfg.checkpoint.
_base_ = 'deit-b-p16-cb_upernet_8xb2-40k_ade20k-512x512.py'
model = dict(backbone=dict(init_cfg=dict(checkpoint='checkpoints/deit_base_patch16_224-b5f2ef4d.pth')))
