# ImageNet-1k fine-tuning of LVT with token labels and MixToken.
# The paper's figures: top-1 74.8, before fine-tuning (Table V).
# python tools/train.py configs/broad_attention/lvt_8xb128-30e_in1k.py
_base_ = [
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/finetune_swin_30e.py',
    '../_base_/default_runtime_mmpretrain.py',
]
# LVT: blocks 2, 2, 2, 2 of width 64 to 256, two class-attention blocks, and classifiers of the class token and of all
# other tokens.
model = dict(
    type='vitplug.TokenLabelClassifier',
    backbone=dict(type='vitplug.LVT', arch='lvt', img_size=224, out_type='raw'),
    head=dict(
        type='vitplug.TokenLabelHead',
        num_classes=1000,
        in_channels=256,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02, bias=0.0),
    ),
    init_cfg=dict(type='vitplug.Pretrained', checkpoint='checkpoints/lvt_imagenet.pth.tar'),
)
# The augmentation of DeiT by transforms that also transform token labels, of which each of 7 x 7 tokens has one.
train_pipeline = _base_.train_pipeline
train_pipeline[1].type = 'vitplug.RandomResizedCrop'
train_pipeline[2].type = 'vitplug.RandomFlip'
train_pipeline[3].type = 'vitplug.RandAugment'
train_pipeline.insert(1, dict(type='vitplug.LoadTokenLabels', root='data/token_labels'))
train_pipeline[-1:] = [
    dict(type='vitplug.SampleTokenPlaces', size=7),
    dict(type='PackInputs', algorithm_keys=('token_labels', 'token_places')),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
# As in LVT's code, tests crop 96 % of the image.
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 233
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
