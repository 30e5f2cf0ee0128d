# ImageNet-1k at 224 with ReViT's augmentation, 256 images per GPU.
_base_ = 'imagenet_bs128_revit_224.py'
train_dataloader = dict(batch_size=256)
