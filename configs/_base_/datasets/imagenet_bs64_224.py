# ImageNet-1k at 224 with the augmentation of DeiT, 64 images per GPU.
_base_ = 'imagenet_bs128_224.py'
train_dataloader = dict(batch_size=64)
