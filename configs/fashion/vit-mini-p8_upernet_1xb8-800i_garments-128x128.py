# Garment segmentation with UPerNet on a small ViT.
# python tools/train.py configs/fashion/vit-mini-p8_upernet_1xb8-800i_garments-128x128.py
_base_ = [
    '../_base_/models/upernet_vit-mini.py',
    '../_base_/datasets/digits_segmentation.py',
    '../_base_/schedules/cosine_400i.py',
    '../_base_/default_runtime_mmseg.py',
]
# As the scenes of digits, but flipped in training.
garments = (
    'T-shirt/top', 'Trouser', 'Pullover', 'Dress', 'Coat',
    'Sandal', 'Shirt', 'Sneaker', 'Bag', 'Ankle boot',
)  # fmt: skip
data_root = '{{$VITPLUG_GARMENTS:data/garments}}/ade'
data_help = dict(root=data_root, command='python tools/dataset_converters/make_garment_scenes.py')
images = dict(data_root=data_root, metainfo=dict(classes=('background', *garments)))
train_pipeline = _base_.train_pipeline
train_pipeline.insert(-1, dict(type='RandomFlip', prob=0.5))
train_dataloader = dict(dataset=dict(images, pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=images)
# Neck and head have twice the learning rate of the backbone. A rule for them replaces the rule that exempts their norms
# from weight decay, so they are exempt as a whole.
heads = dict(lr_mult=2.0, decay_mult=0.0)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'neck': heads, 'decode_head': heads}))
train_cfg = dict(max_iters=800, val_interval=400)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=False, begin=50, end=800),
]
