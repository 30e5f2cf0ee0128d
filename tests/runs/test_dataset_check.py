"""`check_dataset` looks at every file, says what it saw and ends with the number of errors."""

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

from vitplug.runs.checks.samples import labels_of
from vitplug.runs.dataset_check import inspect_sample, main

CONFIGS = Path(__file__).parents[2] / 'configs' / 'digits'
CLASSIFICATION, SEGMENTATION, DETECTION = (
    str(next(CONFIGS.glob(f'{name}_1x*.py'))) for name in ('vit-mini-p4', 'vit-mini-p8_upernet', 'swin*w4_mask-rcnn')
)

# --- single images ---


class OneImage:
    """A data set of an image, as its loader makes it."""

    def __init__(self, path, **load):
        init_default_scope('mmpretrain')
        self.dataset, self.classes = self, ()
        self.pipeline = Compose([dict(type='LoadImageFromFile', **load)])
        self.info = dict(img_path=str(path), width=12, height=8)

    def get_data_info(self, index):
        return dict(self.info)

    def prepare_data(self, index):
        return self.pipeline(self.get_data_info(index))


def faults(path, **load):
    return inspect_sample(OneImage(path, **load), 0)[0]


@pytest.mark.parametrize('suffix', ['png', 'jpg'])
def test_unreadable_image(tmp_path, suffix):
    path = tmp_path / f'a.{suffix}'
    cv2.imwrite(str(path), np.random.default_rng(0).integers(0, 255, (8, 12, 3), np.uint8))
    assert faults(path) == []
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    [fault] = faults(path)
    assert fault.startswith(f'{path}: cannot be loaded: ')
    path.unlink()
    assert faults(path) == [f'no such image: {path}']


@pytest.mark.parametrize(('largest', 'found'), [(4095, 'values to 4095 are loaded as at most 15 of 255'), (65535, '')])
def test_colours_of_16_bits(tmp_path, largest, found):
    """Before: 0 to 4,095 was read as 0 to 15 of 255 in silence."""
    pixels = np.linspace(0, largest, 96 * 3).reshape(8, 12, 3).astype(np.uint16)
    cv2.imwrite(str(tmp_path / 'a.png'), pixels)
    said = faults(tmp_path / 'a.png')
    assert len(said) == bool(found) and all(found in fault for fault in said)


def test_dark_images_of_8_bits_are_sound(tmp_path):
    cv2.imwrite(str(tmp_path / 'a.png'), np.full((8, 12, 3), 5, np.uint8))
    assert faults(tmp_path / 'a.png') == []


def test_the_loader_of_the_config_judges_formats(tmp_path):
    """Before: a TIFF of five bands was called unknown although it trains."""
    path = str(tmp_path / 'a.tif')
    tifffile.imwrite(path, np.zeros((8, 12, 5), np.uint8), photometric='minisblack', planarconfig='contig')
    assert faults(path, color_type='unchanged', imdecode_backend='tifffile') == []


def test_labels_of_ignored_objects_and_of_images():
    instances = [dict(bbox_label=label, ignore_flag=label) for label in (0, 1)]
    assert labels_of(dict(instances=instances)) == [0] and labels_of(dict(gt_label=[0, 2])) == [0, 2]
    assert labels_of(dict(gt_label=1)) == [1] and labels_of({}) == []


# --- the command ---


@pytest.fixture
def data(digits, tmp_path, monkeypatch):
    """A copy of it to be broken."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(tmp_path / 'digits'))
    return Path(shutil.copytree(digits, tmp_path / 'digits'))


@pytest.mark.integration
def test_what_was_seen_is_said(data, capsys):
    """Counted anew from the files."""
    assert main([DETECTION, '--workers', '2']) == 0
    out, content = capsys.readouterr().out, json.loads((data / 'coco/annotations/instances_val.json').read_text())
    classes = {annotation['category_id'] for annotation in content['annotations']}
    images, objects = len(content['images']), len(content['annotations'])
    assert f'val: {images} images, {objects} objects, {len(classes)} of 10 classes\n' in out
    missing = [category['name'] for category in content['categories'] if category['id'] not in classes]
    assert missing and f'nothing in val of the classes {", ".join(map(repr, missing))}\n' in out

    assert main([CLASSIFICATION]) == 0
    assert 'val: 10 images, 10 of 10 classes\n\n0 errors, 0 notes\n' in capsys.readouterr().out

    maps = [np.asarray(Image.open(path)) for path in (data / 'ade/annotations/training').iterdir()]
    labels = {int(label) for one in maps for label in np.unique(one)} - {255}
    assert main([SEGMENTATION, '--splits', 'train']) == 0
    assert f'train: 4 images, {len(labels)} of 11 classes\n' in capsys.readouterr().out


@pytest.mark.integration
def test_everything_wrong_at_once(data, tmp_path, capsys):
    images, maps = (sorted((data / 'ade' / name / 'training').iterdir()) for name in ('images', 'annotations'))
    images[0].write_bytes(b'')
    images[1].write_bytes(images[1].read_bytes()[:200])
    for path, label, size in ((maps[2], 99, Image.open(maps[2]).size), (maps[3], 0, (3, 3))):
        Image.fromarray(np.full(size[::-1], label, np.uint8)).save(path)
    (data / 'ade/annotations/training/odd.png').write_bytes(b'')
    # Control characters and bytes that are not UTF-8, which a strict terminal cannot print.
    odd = os.fsdecode(b'\x1b[31m\xe9.jpg')
    (data / 'ade/images/training' / odd).write_bytes(b'')
    assert main([SEGMENTATION]) == 1
    out = capsys.readouterr().out
    for path, said in (
        (images[0], 'cannot be loaded'),
        (images[1], 'cannot be loaded'),
        (maps[2], r'labels outside of the 11 classes: \[99\]'),
        (images[3], '.* is annotated as 3 x 3'),
    ):
        assert re.search(rf'error  {path}: {said}', out), (path, said)
    assert r'note   .* 1 label maps without an image, e\.g\. odd.png' in out or '\\x1b[31m\\udce9.jpg' in out
    assert '4 errors, 1 notes' in out and '\x1b' not in out


@pytest.mark.integration
def test_settings_are_compared_with_the_classes(data, capsys):
    options = ['--cfg-options', 'model.roi_head.mask_head.num_classes=80']
    assert main([DETECTION, '--splits', 'train', *options]) == 1
    out = capsys.readouterr().out
    assert 'error  model.roi_head.mask_head.num_classes = 80: set it to 10\n1 errors, 0 notes\n' in out


@pytest.mark.integration
def test_missing_data_is_an_error_not_a_traceback(data, capsys):
    shutil.rmtree(data / 'coco' / 'train')
    assert main([DETECTION]) == 1
    out = capsys.readouterr().out
    assert f'error  train_dataloader: no such data folder: {data}/coco/train' in out and 'val: ' in out
