# CIFAR-100 classification with T2T-ViT-7.
# python tools/train.py configs/broad_attention/t2t-vit-7_8xb64-17000i_cifar100.py
_base_ = 't2t-vit-7_8xb64-17000i_cifar10.py'
model = dict(head=dict(num_classes=100))
data_preprocessor = dict(num_classes=100)
train_dataloader = val_dataloader = test_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100'))
