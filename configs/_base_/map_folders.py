# Images and label maps, both PNG files, in folders; eight images per batch.
_base_ = 'segmentation_loaders.py'
train_dataloader = dict(batch_size=8, num_workers=2, dataset=dict(type='BaseSegDataset', img_suffix='.png'))
val_dataloader = dict(num_workers=2, dataset=dict(type='BaseSegDataset', img_suffix='.png'))
test_dataloader = val_dataloader
