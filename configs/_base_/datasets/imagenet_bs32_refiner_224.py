# ImageNet-1k at 224, normalised as in Refiner's code, 32 images per GPU.
_base_ = 'imagenet_bs64_refiner_224.py'
train_dataloader = dict(batch_size=32)
