# CIFAR-100 classification with DeiT-S.
# python tools/train.py configs/broad_attention/deit-s-p16_8xb64-17000i_cifar100.py
_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/vit_finetune_224.py',
    '../_base_/schedules/sgd_17000i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
# Without Mixup, label smoothing and stochastic depth. The new head starts from zero, as in ViT's fine-tuning.
model = dict(
    backbone=dict(
        drop_path_rate=0.0,
        init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/deit_small_patch16_224-cd65a155.pth'),
    ),
    head=dict(
        num_classes=100,
        loss=dict(_delete_=True, type='CrossEntropyLoss'),
        init_cfg=dict(_delete_=True, type='Constant', layer='Linear', val=0.0),
    ),
    train_cfg=None,
)
# The downloaded images are RGB.
data_preprocessor = dict(num_classes=100, to_rgb=False)
train_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100', split='train'))
val_dataloader = test_dataloader = dict(dataset=dict(type='CIFAR100', data_root='data/cifar100', split='test'))
