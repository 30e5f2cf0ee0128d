# Oxford Flowers-102 at 224, with the data set's own split.
_base_ = 'pets_bs64_224.py'
data_preprocessor = dict(num_classes=102)
train_dataloader = dict(dataset=dict(type='Flowers102', data_root='data/flowers102'))
val_dataloader = dict(dataset=dict(type='Flowers102', data_root='data/flowers102'))
test_dataloader = val_dataloader
