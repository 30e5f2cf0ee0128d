# ImageNet-1k at 224 with DeiT's repeated augmentation: an epoch has the same number of samples, from a third of the
# images, each augmented three times.
_base_ = 'imagenet_bs128_224.py'
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
