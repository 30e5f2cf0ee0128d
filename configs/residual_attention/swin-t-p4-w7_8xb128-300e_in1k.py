# ImageNet-1k classification with Swin-T.
# The paper's figures: top-1 81.3, quoted from Swin (Table 2).
# python tools/train.py configs/residual_attention/swin-t-p4-w7_8xb128-300e_in1k.py
_base_ = [
    '../_base_/models/swin.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# Swin's recipe, which ReSwin-T uses. The minimum learning rate, Swin's 5e-6 for 512 images, is scaled to 1024 images
# like the maximum.
optim_wrapper = dict(clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=20, end=300, convert_to_iter_based=True),
]
