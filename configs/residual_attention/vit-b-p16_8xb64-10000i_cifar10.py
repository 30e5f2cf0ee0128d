# CIFAR-10 classification with ViT-B.
# python tools/train.py configs/residual_attention/vit-b-p16_8xb64-10000i_cifar10.py
_base_ = [
    '../_base_/models/revit_finetune.py',
    '../_base_/datasets/vit_finetune_224.py',
    '../_base_/schedules/sgd_10000i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
model = dict(head=dict(num_classes=10))
# The downloaded images are RGB.
data_preprocessor = dict(num_classes=10, to_rgb=False)
train_dataloader = dict(dataset=dict(type='CIFAR10', data_root='data/cifar10', split='train'))
val_dataloader = test_dataloader = dict(dataset=dict(type='CIFAR10', data_root='data/cifar10', split='test'))
