# Oxford-IIIT Pet at 224, with the data set's own split.
_base_ = 'vit_finetune_bs64_224.py'
data_preprocessor = dict(num_classes=37)

train_pipeline = [dict(type='LoadImageFromFile'), *_base_.train_pipeline]
test_pipeline = [dict(type='LoadImageFromFile'), *_base_.test_pipeline]
train_dataloader = dict(
    dataset=dict(type='OxfordIIITPet', data_root='data/oxford_pets', split='trainval', pipeline=train_pipeline)
)
val_dataloader = dict(
    dataset=dict(type='OxfordIIITPet', data_root='data/oxford_pets', split='test', pipeline=test_pipeline)
)
test_dataloader = val_dataloader
