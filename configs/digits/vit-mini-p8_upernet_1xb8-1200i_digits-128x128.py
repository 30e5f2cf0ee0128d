# Digit segmentation with UPerNet on a small ViT.
# Its child with Context Broadcasting reached mIoU 0.799 on held-out digits in 295 s on 2 CPU cores (one run).
# python tools/train.py configs/digits/vit-mini-p8_upernet_1xb8-1200i_digits-128x128.py
_base_ = [
    '../_base_/models/upernet_vit-mini.py',
    '../_base_/datasets/digits_segmentation.py',
    '../_base_/schedules/cosine_1200i.py',
    '../_base_/default_runtime_mmseg.py',
]
# Neck and head have twice the learning rate of the backbone. A rule for them replaces the rule that exempts their norms
# from weight decay, so they are exempt as a whole.
heads = dict(lr_mult=2.0, decay_mult=0.0)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'neck': heads, 'decode_head': heads}))
