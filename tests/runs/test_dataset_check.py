"""`check_dataset` looks at every file, says what is kept and ends with the number of errors."""

import json
import os
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from mmengine.dataset import Compose
from mmengine.registry import init_default_scope
from PIL import Image

from vitplug.runs.checks.samples import look_at
from vitplug.runs.dataset_check import main

CONFIGS = Path(__file__).parents[2] / 'configs' / 'digits'
CLASSIFICATION, SEGMENTATION, DETECTION = (
    str(next(CONFIGS.glob(f'{name}_1x*.py'))) for name in ('vit-mini-p4', 'vit-mini-p8_upernet', 'swin*w4_mask-rcnn')
)

# --- single images ---


class OneImage:
    """A data set, as far as an image's loader goes."""

    def __init__(self, **load):
        init_default_scope('mmpretrain')
        self.dataset, self.classes = self, ()
        self.pipeline = Compose([dict(type='LoadImageFromFile', **load)])


def fault(path, **load):
    return str(look_at(OneImage(**load), dict(img_path=str(path), width=12, height=8)) or '')


@pytest.mark.parametrize('suffix', ['png', 'jpg'])
def test_unreadable_image(tmp_path, suffix):
    path = tmp_path / f'a.{suffix}'
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (8, 12, 3), np.uint8))
    assert not fault(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert fault(path).startswith(f'{path}: cannot be loaded: ')


@pytest.mark.parametrize(('largest', 'said'), [(4095, 'values to 4095 are loaded as at most 15 of 255'), (65535, '')])
def test_colours_of_16_bits(tmp_path, largest, said):
    """Before: 0 to 4,095 was read as 0 to 15 of 255 in silence."""
    pixels = np.linspace(0, largest, 96 * 3).reshape(8, 12, 3).astype(np.uint16)
    cv2.imwrite(str(tmp_path / 'a.png'), pixels)
    assert said in fault(tmp_path / 'a.png') and bool(said) == bool(fault(tmp_path / 'a.png'))
    cv2.imwrite(str(tmp_path / 'a.png'), np.full((8, 12, 4), (40, 40, 40, 255), np.uint8))  # dark, with alpha
    assert not fault(tmp_path / 'a.png')


def test_the_loader_of_the_config_judges_formats(tmp_path):
    """Before: a TIFF of five bands was called unknown although it trains."""
    path = str(tmp_path / 'a.tif')
    tifffile.imwrite(path, np.zeros((8, 12, 5), np.uint8), photometric='minisblack', planarconfig='contig')
    assert not fault(path, color_type='unchanged', imdecode_backend='tifffile')


# --- the command ---


@pytest.fixture
def data(digits, tmp_path, monkeypatch):
    """A copy of it to be broken."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(tmp_path / 'digits'))
    return Path(shutil.copytree(digits, tmp_path / 'digits'))


@pytest.mark.integration
def test_what_was_seen_is_said(data, capsys):
    """Counted anew from the files."""
    assert main([DETECTION]) == 0
    content = json.loads((data / 'coco/annotations/instances_val.json').read_text())
    images, objects = len(content['images']), len(content['annotations'])
    assert f'val_dataloader.dataset: {objects} objects, {images} images kept\n' in capsys.readouterr().out
    assert main([CLASSIFICATION]) == 0
    assert 'val_dataloader.dataset: 10 images kept\n\n0 errors\n' in capsys.readouterr().out


@pytest.mark.integration
def test_everything_wrong_at_once(data, capsys):
    images, maps = (sorted((data / 'ade' / name / 'training').iterdir()) for name in ('images', 'annotations'))
    images[0].write_bytes(b'')
    images[1].write_bytes(images[1].read_bytes()[:200])
    for path, label, size in ((maps[2], 99, Image.open(maps[2]).size), (maps[3], 0, (3, 3))):
        Image.fromarray(np.full(size[::-1], label, np.uint8)).save(path)
    # Control characters and bytes that are not UTF-8, which a strict terminal cannot print.
    (data / 'ade/images/training' / os.fsdecode(b'\x1b[31m\xe9.jpg')).write_bytes(b'')
    assert main([SEGMENTATION]) == 1
    out = capsys.readouterr().out
    for path, said in (
        (images[0], 'cannot be loaded'),
        (images[1], 'cannot be loaded'),
        (maps[2], r'labels outside of the 11 classes: \[99\]'),
        (images[3], '.* is annotated as 3 x 3'),
    ):
        assert re.search(rf'error  {path}: {said}', out), (path, said)
    assert '4 errors' in out and '\\x1b[31m\\udce9.jpg' in out and '\x1b' not in out


@pytest.mark.integration
def test_wrong_settings_and_missing_data_are_errors_and_the_rest_is_looked_at(data, capsys):
    options = ['--cfg-options', 'model.roi_head.mask_head.num_classes=80']
    shutil.rmtree(data / 'coco' / 'train')
    assert main([DETECTION, *options]) == 1
    out = capsys.readouterr().out
    assert f'error  no such data folder: {data}/coco/train' in out and 'val_dataloader.dataset: ' in out
    assert 'model.roi_head.mask_head.num_classes = 80: set it to 10\n2 errors\n' in out
