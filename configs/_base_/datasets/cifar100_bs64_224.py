# CIFAR-100, with its 32 x 32 images enlarged to 224. The downloaded images are RGB.
_base_ = 'cifar10_bs64_224.py'
data_preprocessor = dict(num_classes=100)
train_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100'))
val_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100'))
test_dataloader = val_dataloader
