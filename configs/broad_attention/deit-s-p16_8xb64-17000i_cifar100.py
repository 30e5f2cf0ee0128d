# CIFAR-100 classification with DeiT-S.
# python tools/train.py configs/broad_attention/deit-s-p16_8xb64-17000i_cifar100.py
_base_ = 'deit-s-p16_8xb64-17000i_cifar10.py'
model = dict(head=dict(num_classes=100))
data_preprocessor = dict(num_classes=100)
train_dataloader = val_dataloader = test_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100'))
