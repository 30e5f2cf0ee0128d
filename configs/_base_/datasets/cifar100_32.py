# CIFAR-100 at its own 32 x 32, three passes in an epoch. The downloaded images are RGB.
mean, std = [129.304, 124.070, 112.434], [68.170, 65.392, 70.418]
data_preprocessor = dict(num_classes=100, mean=mean, std=std, to_rgb=False)

augmentation = [
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='RandomCrop', crop_size=32, padding=4),
    dict(type='AutoAugment', policies='imagenet'),
    dict(type='RandomErasing', erase_prob=0.25, min_area_ratio=0.02, max_area_ratio=0.4, fill_color=mean),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=128,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='RepeatDataset',
        times=3,
        dataset=dict(type='CIFAR100', data_root='data/cifar100', split='train', pipeline=augmentation),
    ),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(type='CIFAR100', data_root='data/cifar100', split='test', pipeline=[dict(type='PackInputs')]),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
