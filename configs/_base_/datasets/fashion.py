# Fashion-MNIST: one garment per image, 28 x 28 grey pixels, 60,000 for training and 10,000 for validation. mmpretrain
# downloads it where it is missing.
data_root = '{{$VITPLUG_FASHION:data/fashion_mnist}}'

train_pipeline = [dict(type='RandomFlip', prob=0.5, direction='horizontal'), dict(type='PackInputs')]
test_pipeline = [dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=64,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(type='FashionMNIST', data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=250,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(train_dataloader['dataset'], split='test', test_mode=True, pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
