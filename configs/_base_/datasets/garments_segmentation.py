# Scenes of 3 to 7 garments with label maps, in ADE20K's format: as the scenes of digits, but flipped in training.
_base_ = ['digits_segmentation.py', '../garments.py']
data_root = '{{$VITPLUG_GARMENTS:data/garments}}/ade'
data_help = dict(root=data_root, command='python tools/dataset_converters/make_garment_scenes.py')
metainfo = dict(classes=('background', *_base_.pop('garments')))

train_pipeline = _base_.train_pipeline
train_pipeline.insert(-1, dict(type='RandomFlip', prob=0.5))
train_dataloader = dict(dataset=dict(data_root=data_root, metainfo=metainfo, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(data_root=data_root, metainfo=metainfo))
test_dataloader = val_dataloader
