"""The folder that every case begins with: a tiny config, its data, and the checkpoint of a training."""

import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from bad_inputs.running import ROOT, run_to

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
IMAGES = [
    f'data/{split}/{kind}/{number}.png' for split in ('train', 'val') for kind in ('cat', 'dog') for number in '01'
]


def write(name: str, content: str | bytes) -> Callable[[Path], object]:
    """Returns a function that puts a file into a folder."""
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def child(text: str) -> Callable[[Path], object]:
    """Puts a config there that inherits the tiny classifier."""
    return write('child.py', f"_base_ = 'tiny.py'\n{text}\n")


def starting(checkpoint: str, wider: str = '') -> Callable[[Path], object]:
    """Puts a config there whose backbone starts from a checkpoint."""
    return child(
        f"model = dict(backbone=dict(init_cfg=dict(type='vitplug.Pretrained', checkpoint='{checkpoint}'), {wider}))"
    )


@functools.cache
def _template() -> tempfile.TemporaryDirectory:
    """A folder with a tiny config, its data and the checkpoint of a training; Python removes it at its end."""
    made = tempfile.TemporaryDirectory(prefix='bad_inputs_')
    folder = Path(made.name)
    pixels = np.random.default_rng(0).integers(0, 255, (16, 20, 3), np.uint8)
    for name in IMAGES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
    (folder / 'tiny.py').write_text(CLASSIFIER)
    run_to(0, 'train.py tiny.py --work-dir trained', folder)
    shutil.copy(folder / 'trained/epoch_1.pth', folder / 'good.pth')
    shutil.rmtree(folder / 'trained')
    return made


def prepare(folder: Path) -> Path:
    """Fills a folder for a row."""
    return Path(shutil.copytree(_template().name, folder, dirs_exist_ok=True))
