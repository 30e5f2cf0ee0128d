# ImageNet-1k classification with DeiT-Ti, by the recipe of LocAt.
# python tools/train.py configs/further/deit-ti-p16_8xb128-linear-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(backbone=dict(arch='deit-t'), head=dict(in_channels=192))
# The rate rises for 20 epochs and falls in a line to the end.
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-4, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(
        type='LinearLR', start_factor=1.0, end_factor=1e-4, by_epoch=True, begin=20, end=300, convert_to_iter_based=True
    ),
]
optim_wrapper = dict(clip_grad=dict(max_norm=5.0))
train_dataloader = dict(batch_size=128)
# A crop of 0.9 of the shorter side. The authors' resizing in training draws its interpolation at random.
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 248
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
