# What the loaders of all data sets share: workers that live as long as the training, tests in the data set's order.
train_dataloader = dict(persistent_workers=True, sampler=dict(type='InfiniteSampler', shuffle=True))
val_dataloader = dict(persistent_workers=True, sampler=dict(type='DefaultSampler', shuffle=False))
test_dataloader = val_dataloader
