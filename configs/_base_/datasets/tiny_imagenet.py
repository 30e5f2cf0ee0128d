# Tiny-ImageNet at its own 64 x 64, with its own mean, a folder for each class in `train` and in `val`.
_base_ = 'cifar100_32.py'
mean, std = [122.451, 114.266, 101.363], [70.635, 68.621, 71.936]
data_preprocessor = dict(num_classes=200, mean=mean, std=std, to_rgb=True)

augmentation = [dict(type='LoadImageFromFile'), *_base_.augmentation]
augmentation[2].crop_size = 64
augmentation[4].fill_color = mean[::-1]
images = dict(type='CustomDataset', data_root='data/tiny-imagenet')
train_dataloader = dict(dataset=dict(dataset=dict(images, _delete_=True, data_prefix='train', pipeline=augmentation)))
whole = [dict(type='LoadImageFromFile'), dict(type='PackInputs')]
val_dataloader = dict(dataset=dict(images, _delete_=True, data_prefix='val', pipeline=whole))
test_dataloader = val_dataloader
