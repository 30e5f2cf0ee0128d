# DeiT-S with a distillation token and a convolutional teacher (hard labels). Linear layers are initialised as in DeiT.
_base_ = 'deit.py'
model = dict(
    type='vitplug.DistilledClassifier',
    backbone=dict(type='vitplug.DistilledVisionTransformer'),
    head=dict(type='DeiTClsHead'),
    teacher=dict(type='TimmClassifier', model_name='regnety_160', loss=dict(type='CrossEntropyLoss')),
    teacher_checkpoint='checkpoints/regnety_160-a5fe301d.pth',
)
