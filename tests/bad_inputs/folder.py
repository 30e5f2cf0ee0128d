"""The folder that every case begins with: tiny configs, their data, and the checkpoint of a training."""

import functools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from bad_inputs.running import ROOT, run

PIPELINE = "[dict(type='LoadImageFromFile'), dict(type='Resize', scale=(16, 16)), dict(type='PackInputs')]"
VIT = (
    "type='vitplug.VisionTransformer', arch=dict(embed_dims=8, num_layers=2, num_heads=2, feedforward_channels=16), "
    'patch_size=8, with_cls_token=False'
)
CLASSIFIER = f"""
_base_ = '{ROOT}/configs/_base_/default_runtime_mmpretrain.py'
default_scope = 'mmpretrain'
work_dir = 'work'
_settings = dict(type='CustomDataset', data_root='data', metainfo=dict(classes=('cat', 'dog')), pipeline={PIPELINE})
_loader = dict(batch_size=2, num_workers=0, collate_fn=dict(type='default_collate'))
_ordered = dict(type='DefaultSampler', shuffle=False)
train_dataloader = dict(**_loader, sampler=_ordered, dataset=dict(**_settings, data_prefix='train'))
val_dataloader = dict(**_loader, sampler=_ordered, dataset=dict(**_settings, data_prefix='val'))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy')
test_evaluator = val_evaluator
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=2, mean=[127.5] * 3, std=[64.0] * 3),
    backbone=dict({VIT}, img_size=16, out_type='avg_featmap'),
    head=dict(type='LinearClsHead', num_classes=2, in_channels=8),
)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.01))
train_cfg = dict(by_epoch=True, max_epochs=1)
val_cfg = dict()
test_cfg = dict()
log_level = 'WARNING'
"""
SWIN = """
_base_ = 'tiny.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='vitplug.SwinTransformer',
        arch=dict(embed_dims=8, depths=[1, 1], num_heads=[2, 2]),
        img_size=32,
        window_size=4,
        out_indices=(1,),
    ),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(in_channels=16),
)
"""
MASKS = f"""
_base_ = '{ROOT}/configs/digits/swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py'
work_dir = 'work'
_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='Resize', scale=(32, 32)),
    dict(type='PackDetInputs'),
]
train_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        data_root='coco',
        ann_file='train.json',
        data_prefix=dict(_delete_=True, img='train'),
        metainfo=dict(_delete_=True, classes=('cat', 'dog')),
        pipeline=_pipeline,
    ),
)
val_cfg = val_dataloader = val_evaluator = None
model = dict(
    backbone=dict(in_channels=3),
    roi_head=dict(bbox_head=dict(num_classes=2), mask_head=dict(num_classes=2)),
)
train_cfg = dict(max_iters=4)
log_level = 'WARNING'
"""
IMAGES = (
    *(f'data/{split}/{kind}/{number}.png' for split in ('train', 'val') for kind in ('cat', 'dog') for number in '01'),
    *(f'coco/train/{number}.png' for number in '01'),
)


def coco_file(**annotation) -> dict:
    """A COCO file of two images with an annotation each, the second changed."""
    outline = [[1, 1, 9, 1, 9, 9, 1, 9]]
    first = dict(id=3, image_id=0, category_id=1, bbox=[1, 1, 8, 8], area=64, iscrowd=0, segmentation=outline)
    images = [dict(id=number, file_name=f'{number}.png', width=20, height=16) for number in range(2)]
    categories = [dict(id=1, name='cat'), dict(id=2, name='dog')]
    second = {**first, 'id': 1, 'image_id': 1, **annotation}
    return dict(images=images, categories=categories, annotations=[first, second])


@functools.cache
def _template() -> Path:
    """A folder with tiny configs, their data and the checkpoint of a training."""
    folder = Path(tempfile.mkdtemp(prefix='bad_inputs_'))
    pixels = np.random.default_rng(0).integers(0, 255, (16, 20, 3), np.uint8)
    for name in IMAGES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
    (folder / 'coco/train.json').write_text(json.dumps(coco_file()))
    (folder / 'tiny.py').write_text(CLASSIFIER)
    (folder / 'swin.py').write_text(SWIN)
    (folder / 'mask.py').write_text(MASKS)
    done = run('train.py tiny.py --work-dir trained', folder)
    assert done.status == 0, done.text
    shutil.copy(folder / 'trained/epoch_1.pth', folder / 'good.pth')
    shutil.rmtree(folder / 'trained')
    return folder


def prepare(folder: Path) -> Path:
    """Fills a folder for a row."""
    return Path(shutil.copytree(_template(), folder, dirs_exist_ok=True))


def clean() -> None:
    """Removes what the rows were copied from."""
    if _template.cache_info().currsize:
        shutil.rmtree(_template())
        _template.cache_clear()
