# ImageNet-1k at 224 with the augmentation of DeiT, repeated: an epoch has as many samples as before, of a third of the
# images, each augmented three times.
_base_ = 'imagenet_bs128_224.py'
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
