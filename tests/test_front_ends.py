"""The libraries' own train scripts and inferencers run a stock config with two changes: no tool of vitplug is used.

The rest of each config makes it small: a narrow backbone without pretrained weights, two made images, two steps.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PLUGGED = """
_base_ = {base!r}
{imports}
model = dict(backbone=dict(type='vitplug.SwinTransformer', plugs=[dict(type='GaussianAttentionBias')]))
model['backbone'].update({small})
"""
SWIN = 'init_cfg=None, embed_dims=12, depths=(1, 2, 1, 1), num_heads=(1, 2, 3, 4), window_size=4'
LOADERS = """
for loader in (train_dataloader, val_dataloader, test_dataloader):
    loader.update(num_workers=0, persistent_workers=False, batch_size=2)
param_scheduler = []
log_level = 'WARNING'
"""
DETECTION = """
model.update(
    data_preprocessor=dict(pad_size_divisor=32),
    neck=dict(in_channels=[24, 48, 96], out_channels=16),
    bbox_head=dict(in_channels=16, feat_channels=16, stacked_convs=1),
)
resize = dict(type='Resize', scale=(70, 50), keep_ratio=True)
load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', with_bbox=True), resize]
images = dict(type='CocoDataset', data_root={data!r}, ann_file='boxes.json', data_prefix=dict(img='images'))
train_dataloader = dict(dataset=dict(images, _delete_=True, pipeline=[*load, dict(type='PackDetInputs')]))
meta = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
tested = dict(images, _delete_=True, test_mode=True, pipeline=[*load, dict(type='PackDetInputs', meta_keys=meta)])
val_dataloader, test_dataloader = dict(dataset=tested), dict(dataset=tested)
val_evaluator = dict(ann_file={data!r} + '/boxes.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=1)
"""
SEGMENTATION = """
bn = dict(type='BN', requires_grad=True)
model.update(
    data_preprocessor=dict(size=(48, 48)),
    decode_head=dict(in_channels=[12, 24, 48, 96], channels=16, norm_cfg=bn),
    auxiliary_head=dict(in_channels=48, channels=16, norm_cfg=bn),
)
load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', reduce_zero_label=True)]
load.append(dict(type='PackSegInputs'))
images = dict(data_root={data!r}, data_prefix=dict(img_path='images', seg_map_path='maps'), pipeline=load)
train_dataloader, val_dataloader, test_dataloader = dict(dataset=images), dict(dataset=images), dict(dataset=images)
train_cfg = dict(max_iters=2, val_interval=2)
default_hooks = dict(checkpoint=dict(interval=2))
"""
CLASSIFICATION = """
model.update(head=dict(in_channels=96, num_classes=2, topk=(1,)))
data_preprocessor = dict(num_classes=2)
val_evaluator = test_evaluator = dict(topk=(1,))
load = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=64), dict(type='PackInputs')]
images = dict(type='CustomDataset', data_root={data!r}, data_prefix='classes', pipeline=load, _delete_=True)
train_dataloader, val_dataloader, test_dataloader = dict(dataset=images), dict(dataset=images), dict(dataset=images)
train_cfg = dict(max_epochs=1)
"""
ARCH = 'arch=dict(embed_dims=12, depths=[1, 2, 1, 1], num_heads=[1, 2, 3, 4], _delete_=True), window_size=2'
# Library: config, its arguments of a small backbone, other settings, inferencer, checkpoint
CASES = {
    'mmdet': ('swin/retinanet_swin-t-p4-w7_fpn_1x_coco.py', SWIN, DETECTION, 'apis.DetInferencer', 'epoch_1.pth'),
    'mmseg': (
        'swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
        SWIN,
        SEGMENTATION,
        'apis.MMSegInferencer',
        'iter_2.pth',
    ),
    'mmpretrain': (
        'swin_transformer/swin-tiny_16xb64_in1k.py',
        ARCH,
        CLASSIFICATION,
        'ImageClassificationInferencer',
        'epoch_1.pth',
    ),
}
INFER = """
from {module} import {name}
inferencer = {name}('child.py', 'work/{checkpoint}', device='cpu')
found = inferencer('data/images/a.jpg')
backbone = inferencer.model.backbone
print(type(backbone).__name__, backbone.plug_names, type(found).__name__)
"""


def make_data(folder: Path) -> None:
    """Two images with boxes, label maps and classes, for the three tasks."""
    rng = np.random.default_rng(0)
    coco = dict(images=[], annotations=[], categories=[dict(id=i + 1, name=name) for i, name in enumerate('ab')])
    for index, name in enumerate('ab'):
        image = Image.fromarray(rng.integers(0, 255, (50, 70, 3), dtype=np.uint8))
        for path in (folder / 'images' / f'{name}.jpg', folder / 'classes' / name / 'image.jpg'):
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
        (folder / 'maps').mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 5, (50, 70), dtype=np.uint8)).save(folder / 'maps' / f'{name}.png')
        coco['images'].append(dict(id=index, file_name=f'{name}.jpg', height=50, width=70))
        box = dict(bbox=[5, 5, 30, 30], area=900, iscrowd=0, category_id=1 + index)
        coco['annotations'].append(dict(box, id=index + 1, image_id=index))
    (folder / 'boxes.json').write_text(json.dumps(coco))


def run(*command: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.integration
@pytest.mark.parametrize('library', CASES)
def test_stock_config_with_two_lines_changed(library, tmp_path):
    """Without `custom_imports`, and with them for one library."""
    imports = "custom_imports = dict(imports=['vitplug'])" if library == 'mmpretrain' else ''
    base, small, rest, inferencer, checkpoint = CASES[library]
    mim = Path(importlib.import_module(library).__file__).parent / '.mim'
    make_data(tmp_path / 'data')
    text = PLUGGED.format(base=str(mim / 'configs' / base), imports=imports, small=f'dict({small})')
    (tmp_path / 'child.py').write_text(text + rest.replace('{data!r}', repr(str(tmp_path / 'data'))) + LOADERS)
    run(str(mim / 'tools' / 'train.py'), 'child.py', '--work-dir', 'work', folder=tmp_path)
    module, _, name = f'{library}.{inferencer}'.rpartition('.')
    code = INFER.format(module=module, name=name, checkpoint=checkpoint)
    assert "SwinTransformer ['gab'] " in run('-c', code, folder=tmp_path).splitlines()[-1]
