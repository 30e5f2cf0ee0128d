# Stanford Dogs at 224 with the transforms of the GAB paper, on the data set's own split.
_base_ = 'pets_bs128_gab_224.py'
data_help = 'python tools/dataset_converters/stanford_dogs.py'
data_root = 'data/stanford_dogs'
data_preprocessor = dict(num_classes=120)
train_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='CustomDataset',
        data_root=data_root,
        data_prefix='Images',
        ann_file='meta/train.txt',
        pipeline=_base_.train_pipeline,
    ),
)
val_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='CustomDataset',
        data_root=data_root,
        data_prefix='Images',
        ann_file='meta/test.txt',
        pipeline=_base_.test_pipeline,
    ),
)
test_dataloader = val_dataloader
