# Garment instance segmentation with Mask R-CNN on a small Swin Transformer.
# python tools/train.py configs/fashion/swin-mini-p4-w4_mask-rcnn_1xb8-400i_garments-128x128.py
_base_ = [
    '../_base_/models/mask-rcnn_swin-mini.py',
    '../_base_/datasets/digits_detection.py',
    '../_base_/schedules/cosine_400i.py',
    '../_base_/default_runtime_mmdet.py',
]
# As the scenes of digits, but flipped in training.
garments = (
    'T-shirt/top', 'Trouser', 'Pullover', 'Dress', 'Coat',
    'Sandal', 'Shirt', 'Sneaker', 'Bag', 'Ankle boot',
)  # fmt: skip
data_root = '{{$VITPLUG_GARMENTS:data/garments}}/coco'
data_help = dict(root=data_root, command='python tools/dataset_converters/make_garment_scenes.py')
images = dict(data_root=data_root, metainfo=dict(classes=garments))
train_pipeline = _base_.train_pipeline
train_pipeline.insert(-1, dict(type='RandomFlip', prob=0.5))
train_dataloader = dict(dataset=dict(images, pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(dataset=images)
val_evaluator = test_evaluator = dict(ann_file=f'{data_root}/annotations/instances_val.json')
