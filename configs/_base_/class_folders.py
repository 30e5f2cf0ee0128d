# Images in class folders, as in ImageNet.
_base_ = 'classification_loaders.py'
train_dataloader = dict(num_workers=2, dataset=dict(type='CustomDataset', data_prefix='train'))
val_dataloader = dict(num_workers=2, dataset=dict(type='CustomDataset'))
test_dataloader = val_dataloader
