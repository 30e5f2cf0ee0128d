# Caltech-101 at 224, including the background class, with the splits and transforms of the GAB paper's script.
_base_ = 'pets_bs128_gab_224.py'
data_root = 'data/caltech-101'
data_help = dict(root=data_root, command='python tools/dataset_converters/pooled_splits.py caltech101 data/caltech-101')
data_preprocessor = dict(num_classes=102)
train_dataloader = val_dataloader = test_dataloader = dict(
    dataset=dict(data_root=data_root, data_prefix='101_ObjectCategories')
)
