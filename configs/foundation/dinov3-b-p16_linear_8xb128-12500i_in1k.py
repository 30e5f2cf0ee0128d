# ImageNet-1k classification with a linear head on the class token of frozen DINOv3-B.
# python tools/train.py configs/foundation/dinov3-b-p16_linear_8xb128-12500i_in1k.py
_base_ = [
    '../_base_/models/dinov3-b-p16.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/sgd_10000i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
# A linear classifier on the normalised class token. It starts from zero.
model = dict(
    type='ImageClassifier',
    backbone=dict(_base_.pop('dinov3'), frozen='host'),
    neck=None,
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        in_channels=768,
        loss=dict(type='CrossEntropyLoss'),
        init_cfg=dict(type='Constant', layer='Linear', val=0.0),
    ),
)
# Random crops and flips alone.
train_pipeline = [step for step in _base_.train_pipeline if step.type not in ('RandAugment', 'RandomErasing')]
train_dataloader = dict(
    sampler=dict(_delete_=True, type='InfiniteSampler', shuffle=True), dataset=dict(pipeline=train_pipeline)
)
# A cosine schedule without warm-up, no gradient clipping.
optim_wrapper = dict(optimizer=dict(lr=0.1), clip_grad=None)
train_cfg = dict(max_iters=12500, val_interval=1250)
param_scheduler = [dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=0, end=12500)]
auto_scale_lr = dict(base_batch_size=1024)
