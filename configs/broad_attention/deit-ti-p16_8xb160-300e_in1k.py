# ImageNet-1k classification with DeiT-Ti.
# The paper's figures: top-1 72.2, quoted from DeiT, which was trained with its own recipe (Table III).
# python tools/train.py configs/broad_attention/deit-ti-p16_8xb160-300e_in1k.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    backbone=dict(arch=dict(_delete_=True, embed_dims=192, num_layers=12, num_heads=3, feedforward_channels=768)),
    head=dict(in_channels=192),
)
train_dataloader = dict(batch_size=160)
# The learning rate follows DeiT's rule, 5e-4 for 512 images; the paper's 5000 steps of warm-up are 5 epochs. The decay
# of the averaged weights (EMA) is DeiT's.
optim_wrapper = dict(optimizer=dict(lr=1.25e-3))
auto_scale_lr = dict(base_batch_size=1280)
custom_hooks = [dict(type='EMAHook', momentum=4e-5, priority='ABOVE_NORMAL')]
