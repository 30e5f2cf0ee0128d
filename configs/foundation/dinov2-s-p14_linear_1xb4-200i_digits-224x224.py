# The digits' scenes, in colour and enlarged to twice their size, with a linear head on a frozen DINOv2-S.
# python tools/train.py configs/foundation/dinov2-s-p14_linear_1xb4-200i_digits-224x224.py
_base_ = [
    '../_base_/models/linear_dinov2-s-p14.py',
    '../_base_/datasets/digits_segmentation.py',
    '../_base_/schedules/cosine_200i.py',
    '../_base_/default_runtime_mmseg.py',
]
load, enlarge = dict(type='LoadImageFromFile'), dict(type='Resize', scale_factor=2.0)
crop, pack = dict(type='RandomCrop', crop_size=(224, 224)), dict(type='PackSegInputs')
train_pipeline = [load, dict(type='LoadAnnotations'), enlarge, crop, pack]
# The label maps are loaded last: the evaluation needs them at the original size.
test_pipeline = [load, enlarge, dict(type='LoadAnnotations'), pack]
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
