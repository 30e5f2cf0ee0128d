# Caltech-101, background included, at 224 with the transforms of the GAB paper, on the data set's own split.
_base_ = 'pets_bs128_gab_224.py'
data_preprocessor = dict(num_classes=102)
train_dataloader = dict(dataset=dict(type='Caltech101', data_root='data/caltech-101', split='train'))
val_dataloader = dict(dataset=dict(type='Caltech101', data_root='data/caltech-101'))
test_dataloader = val_dataloader
