# Nuclei under the microscope, with boxes and masks in COCO's format: 256 x 256 to 1040 x 1388 pixels, 1 to 375 nuclei
# each. Images are resized to a short side of at most 256 pixels, and trained on in crops.
_base_ = 'mmdet::_base_/datasets/coco_instance.py'
data_root = '{{$VITPLUG_NUCLEI:data/nuclei}}'
data_help = dict(root=data_root, command=f'python tools/dataset_converters/nuclei.py FOLDER --out {data_root}')
metainfo = dict(classes=('nucleus',), palette=[(220, 20, 60)])

resize = dict(type='Resize', scale=(512, 256), keep_ratio=True)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    resize,
    dict(type='RandomCrop', crop_size=(128, 128)),
    dict(type='RandomFlip', prob=[0.25, 0.25, 0.25], direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackDetInputs'),
]
# The annotations are loaded last: the evaluation needs them at the original size.
test_pipeline = [dict(type='LoadImageFromFile'), resize, *_base_.test_pipeline[-2:]]
train_dataloader = dict(
    batch_size=8,
    sampler=dict(type='InfiniteSampler'),
    batch_sampler=None,
    dataset=dict(
        data_root=data_root,
        ann_file='train.json',
        data_prefix=dict(img='train/'),
        filter_cfg=dict(min_size=0),
        metainfo=metainfo,
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=4,
    dataset=dict(
        data_root=data_root,
        ann_file='val.json',
        data_prefix=dict(img='val/'),
        metainfo=metainfo,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=f'{data_root}/val.json')
test_evaluator = val_evaluator
