# Stanford Dogs at 224, with the splits and transforms of the GAB paper's script.
_base_ = 'pets_bs128_gab_224.py'
data_root = 'data/stanford_dogs'
data_help = dict(root=data_root, command='python tools/dataset_converters/pooled_splits.py dogs data/stanford_dogs')
data_preprocessor = dict(num_classes=120)
train_dataloader = val_dataloader = test_dataloader = dict(dataset=dict(data_root=data_root, data_prefix='Images'))
