# ImageNet-1k classification with DeiT-S.
# The paper's figures: top-1 79.9, quoted from DeiT, which was trained with its own recipe (Table III).
# python tools/train.py configs/broad_attention/deit-s-p16_8xb64-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
train_dataloader = dict(batch_size=64)
# The learning rate follows DeiT's rule, 5e-4 for 512 images; the paper's 5000 steps of warm-up are 2 epochs. The decay
# of the averaged weights (EMA) is DeiT's.
optim_wrapper = dict(optimizer=dict(lr=5e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=2, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=2, end=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(base_batch_size=512)
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
