# Images as in the code of ViT's fine-tuning, at 224: random crops of 5 to 100 % of the area and flips in training,
# whole images resized without keeping their ratio in tests, bilinear without smoothing. That code normalises images as
# ViT's pre-training did, by 0.5; the networks here were pre-trained with ImageNet's mean and standard deviation.
data_preprocessor = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)

train_pipeline = [
    dict(type='RandomResizedCrop', scale=224, crop_ratio_range=(0.05, 1.0), backend='cv2', interpolation='bilinear'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
test_pipeline = [dict(type='Resize', scale=224, backend='cv2', interpolation='bilinear'), dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=64,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=100,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
