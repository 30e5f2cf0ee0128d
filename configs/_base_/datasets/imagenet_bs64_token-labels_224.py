# ImageNet-1k at 224 with a label for every token: 64 images a GPU, augmented as in imagenet_bs128_224.py by transforms
# that token labels follow. Filled and erased for models that normalise to [-1, 1], as the conv-stem ViTs do.
_base_ = 'imagenet_bs128_224.py'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='vitplug.LoadTokenLabels', root='data/token_labels'),
    dict(type='vitplug.RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='vitplug.RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='vitplug.RandAugment',
        policies='timm_increasing',
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[128, 128, 128], interpolation='bicubic'),
    ),
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=[127.5] * 3,
        fill_std=[127.5] * 3,
    ),
    dict(type='vitplug.SampleTokenPlaces', size=14),
    dict(type='PackInputs', algorithm_keys=('token_labels', 'token_places')),
]
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
