# Scenes of 3 to 7 garments with boxes and masks, in COCO's format: as the scenes of digits, but flipped in training.
_base_ = ['digits_detection.py', '../garments.py']
data_root = '{{$VITPLUG_GARMENTS:data/garments}}/coco'
data_help = dict(root=data_root, command='python tools/dataset_converters/make_garment_scenes.py')
metainfo = dict(classes=_base_.pop('garments'))

train_pipeline = _base_.train_pipeline
train_pipeline.insert(-1, dict(type='RandomFlip', prob=0.5))
train_dataloader = dict(dataset=dict(data_root=data_root, metainfo=metainfo, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(data_root=data_root, metainfo=metainfo))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=f'{data_root}/annotations/instances_val.json')
test_evaluator = val_evaluator
