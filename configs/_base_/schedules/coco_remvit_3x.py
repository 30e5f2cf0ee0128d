# 36 epochs of AdamW on COCO for 64 images per step, as in MViTv2: 250 iterations of warm-up; the learning rate is
# divided by 10 after 28 and 33 epochs.
_base_ = 'coco_3x.py'
optim_wrapper = dict(optimizer=dict(lr=1.6e-4, weight_decay=0.1))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=250),
    dict(type='MultiStepLR', milestones=[28, 33], gamma=0.1, by_epoch=True, begin=0, end=36),
]
auto_scale_lr = dict(base_batch_size=64)
