# ImageNet-1k at 224, normalised as in Refiner's code, 64 images per GPU, with a label for every token. The augmentation
# is that of imagenet_bs64_refiner_224.py, with transforms that also transform token labels.
_base_ = 'imagenet_bs64_refiner_224.py'
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
