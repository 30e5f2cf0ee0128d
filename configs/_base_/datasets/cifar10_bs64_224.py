# CIFAR-10, with its 32 x 32 images enlarged to 224. The downloaded images are RGB.
_base_ = 'vit_finetune_bs64_224.py'
data_preprocessor = dict(num_classes=10, to_rgb=False)
train_dataloader = dict(dataset=dict(type='CIFAR10', data_root='data/cifar10', split='train'))
val_dataloader = dict(dataset=dict(type='CIFAR10', data_root='data/cifar10', split='test'))
test_dataloader = val_dataloader
