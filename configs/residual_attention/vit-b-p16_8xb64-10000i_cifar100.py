# CIFAR-100 classification with ViT-B.
# python tools/train.py configs/residual_attention/vit-b-p16_8xb64-10000i_cifar100.py
_base_ = [
    '../_base_/models/revit_finetune.py',
    '../_base_/datasets/vit_finetune_224.py',
    '../_base_/schedules/sgd_10000i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
model = dict(head=dict(num_classes=100))
# The downloaded images are RGB.
data_preprocessor = dict(num_classes=100, to_rgb=False)
train_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100', split='train'))
val_dataloader = test_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100', split='test'))
