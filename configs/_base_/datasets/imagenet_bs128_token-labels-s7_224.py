# ImageNet-1k at 224 with the augmentation of DeiT, and a label for each of 7 x 7 tokens, by transforms that also
# transform token labels. Tests crop 96 % of the image, as in LVT's code.
_base_ = 'imagenet_bs128_224.py'
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
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 233
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
