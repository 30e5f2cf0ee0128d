# Stanford Cars at 224, with the splits and transforms of the GAB paper's script.
_base_ = 'pets_bs128_gab_224.py'
data_root = 'data/stanfordcars'
data_help = dict(root=data_root, command='python tools/dataset_converters/pooled_splits.py cars data/stanfordcars')
data_preprocessor = dict(num_classes=196)
train_dataloader = val_dataloader = test_dataloader = dict(dataset=dict(data_root=data_root, data_prefix='car_ims'))
