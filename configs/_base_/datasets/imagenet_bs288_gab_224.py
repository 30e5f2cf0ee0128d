# ImageNet-1k at 224 with the augmentation of DeiT, 288 images per GPU. As in timm's vit_relpos_*, mean and standard
# deviation are 0.5, and the test crop is 0.9 of an image.
_base_ = 'imagenet_bs128_224.py'
bgr_mean = [127.5, 127.5, 127.5]
bgr_std = [127.5, 127.5, 127.5]
data_preprocessor = dict(mean=bgr_mean, std=bgr_std)
train_pipeline = _base_.train_pipeline
train_pipeline[3].hparams.pad_val = [128, 128, 128]
train_pipeline[4].fill_color = bgr_mean
train_pipeline[4].fill_std = bgr_std
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 248
train_dataloader = dict(batch_size=288, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
