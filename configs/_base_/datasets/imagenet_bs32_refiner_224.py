# ImageNet-1k at 224 as Refiner's code normalises it, 32 images a GPU.
_base_ = 'imagenet_bs64_refiner_224.py'
train_dataloader = dict(batch_size=32)
