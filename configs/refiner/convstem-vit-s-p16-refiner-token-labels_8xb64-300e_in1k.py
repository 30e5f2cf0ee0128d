# ImageNet-1k classification with Refined-ViT-S, trained with token labels and MixToken.
# Differs from convstem-vit-s-p16-refiner_8xb64-300e_in1k.py in: model.type, model.backbone.out_type, model.head,
# model.train_cfg, train_pipeline, train_dataloader.
# python tools/train.py configs/refiner/convstem-vit-s-p16-refiner-token-labels_8xb64-300e_in1k.py
_base_ = [
    '../_base_/models/convstem-vit.py',
    '../_base_/datasets/imagenet_half.py',
    '../_base_/schedules/refiner_300e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
model = dict(
    type='vitplug.TokenLabelClassifier',
    backbone=dict(out_type='raw', plugs=[dict(type='Refiner', share=1)]),
    head=dict(
        _delete_=True,
        type='vitplug.TokenLabelHead',
        num_classes=1000,
        in_channels=384,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
    # MixToken takes the place of Mixup and CutMix.
    train_cfg=dict(_delete_=True),
)
# The augmentation of DeiT by transforms that also transform token labels, one label a token.
train_pipeline = _base_.train_pipeline
train_pipeline[1].type = 'vitplug.RandomResizedCrop'
train_pipeline[2].type = 'vitplug.RandomFlip'
train_pipeline[3].type = 'vitplug.RandAugment'
train_pipeline.insert(1, dict(type='vitplug.LoadTokenLabels', root='data/token_labels'))
train_pipeline[-1:] = [
    dict(type='vitplug.SampleTokenPlaces', size=14),
    dict(type='PackInputs', algorithm_keys=('token_labels', 'token_places')),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
# The same learning rate for 512 images per step.
auto_scale_lr = dict(base_batch_size=512)
