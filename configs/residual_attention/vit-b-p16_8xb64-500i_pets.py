# Oxford-IIIT Pet classification with ViT-B.
# python tools/train.py configs/residual_attention/vit-b-p16_8xb64-500i_pets.py
_base_ = [
    '../_base_/models/revit_finetune.py',
    '../_base_/datasets/vit_finetune_224.py',
    '../_base_/schedules/sgd_10000i.py',
    '../_base_/default_runtime_mmpretrain.py',
]
default_hooks = dict(logger=dict(log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=1000))
log_processor = dict(by_epoch=False)
model = dict(head=dict(num_classes=37))
# The data set's own split.
data_preprocessor = dict(num_classes=37)
load = dict(type='LoadImageFromFile')
train_pipeline, test_pipeline = [load, *_base_.train_pipeline], [load, *_base_.test_pipeline]
images = dict(type='OxfordIIITPet', data_root='data/oxford_pets')
train_dataloader = dict(dataset=dict(images, split='trainval', pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(images, split='test', pipeline=test_pipeline))
# The warm-up of 100 iterations is that of the configs in ViT's code that train for 500: its default of 500 would leave
# no decay.
train_cfg = dict(max_iters=500, val_interval=100)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=100),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=False, begin=100, end=500),
]
