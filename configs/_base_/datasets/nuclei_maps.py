# Nuclei under the microscope as label maps of two classes; images have 256 x 256 to 1040 x 1388 pixels. They are
# resized to a short side of at most 256 pixels; results are at the original size. Loaders are CamVid's.
_base_ = 'camvid_224.py'
data_root = '{{$VITPLUG_NUCLEI:data/nuclei}}'
data_help = dict(root=data_root, command=f'python tools/dataset_converters/nuclei.py FOLDER --out {data_root}')
metainfo = dict(classes=('background', 'nucleus'), palette=[(0, 0, 0), (220, 20, 60)])

resize = dict(type='Resize', scale=(512, 256), keep_ratio=True)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    resize,
    dict(type='RandomCrop', crop_size=(224, 224)),
    dict(type='RandomFlip', prob=[0.25, 0.25, 0.25], direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackSegInputs'),
]
# The label maps are loaded last: the evaluation needs them at the original size.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    resize,
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    dataset=dict(
        data_root=data_root,
        data_prefix=dict(img_path='train', seg_map_path='maps/train'),
        metainfo=metainfo,
        pipeline=train_pipeline,
    )
)
val_dataloader = test_dataloader = dict(
    dataset=dict(
        data_root=data_root,
        data_prefix=dict(img_path='val', seg_map_path='maps/val'),
        metainfo=metainfo,
        pipeline=test_pipeline,
    )
)
