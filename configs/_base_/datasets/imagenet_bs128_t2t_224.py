# ImageNet-1k at 224 with the augmentation of DeiT, which T2T-ViT's code has, too. The test crop is 0.9 of an image.
_base_ = 'imagenet_bs128_224.py'
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = 248
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
