# CIFAR-100 classification with ViT-B.
# python tools/train.py configs/residual_attention/vit-b-p16_8xb64-10000i_cifar100.py
_base_ = 'vit-b-p16_8xb64-10000i_cifar10.py'
model = dict(head=dict(num_classes=100))
data_preprocessor = dict(num_classes=100)
train_dataloader = val_dataloader = test_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100'))
