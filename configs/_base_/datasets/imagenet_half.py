# ImageNet-1k at 224 with the augmentation of DeiT, 64 images per GPU, normalised with mean = std = 0.5 of the range as
# in Refiner's code. As in timm, RandAugment and random erasing fill with this mean (and deviation).
_base_ = 'imagenet.py'
data_preprocessor = dict(mean=[127.5] * 3, std=[127.5] * 3)
bgr_mean = data_preprocessor['mean']
bgr_std = data_preprocessor['std']

train_pipeline = _base_.train_pipeline
train_pipeline[3].hparams.pad_val = [round(channel) for channel in bgr_mean]
train_pipeline[4].update(fill_color=bgr_mean, fill_std=bgr_std)
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
