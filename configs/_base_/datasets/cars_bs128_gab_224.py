# Stanford Cars at 224 with the transforms of the GAB paper, on the data set's own split.
_base_ = 'pets_bs128_gab_224.py'
data_preprocessor = dict(num_classes=196)
train_dataloader = dict(dataset=dict(type='StanfordCars', data_root='data/stanfordcars', split='train'))
val_dataloader = dict(dataset=dict(type='StanfordCars', data_root='data/stanfordcars'))
test_dataloader = val_dataloader
