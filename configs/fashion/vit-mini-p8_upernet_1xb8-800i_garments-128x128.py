# Garment segmentation with UPerNet on a small ViT.
# python tools/train.py configs/fashion/vit-mini-p8_upernet_1xb8-800i_garments-128x128.py
_base_ = [
    '../_base_/models/upernet_vit-mini.py',
    '../_base_/datasets/garments_segmentation.py',
    '../_base_/schedules/cosine_800i.py',
    '../_base_/default_runtime_mmseg.py',
]
# Neck and head have twice the learning rate of the backbone. A rule for them replaces the rule that exempts their norms
# from weight decay, so they are exempt as a whole.
heads = dict(lr_mult=2.0, decay_mult=0.0)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'neck': heads, 'decode_head': heads}))
