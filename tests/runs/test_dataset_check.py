"""Every kind of bad data is found, named and told apart from what is handled."""

import json
import os
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from mmcv.transforms import LoadImageFromFile
from PIL import Image

from vitplug.files.orientation import turned_formats
from vitplug.runs.checks.accounts import loaded_size
from vitplug.runs.dataset_check import inspect_image, inspect_labels, labels_of, main

CONFIGS = Path(__file__).parents[2] / 'configs' / 'digits'


def picture(path, mode='RGB', size=(12, 8), **options):
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 4), np.uint8)
    image = Image.fromarray(pixels, 'RGBA')
    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257) if mode == 'I;16' else image.convert(mode)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return str(path)


def kinds(findings):
    return [finding.kind for finding in findings]


# --- images ---


@pytest.mark.parametrize('suffix', ['png', 'jpg'])
def test_unreadable_image(tmp_path, suffix):
    path = Path(picture(tmp_path / f'a.{suffix}', size=(64, 64)))
    assert list(inspect_image(str(path), (64, 64))) == []
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert kinds(inspect_image(str(path))) == ['image cannot be read']
    path.unlink()
    [finding] = inspect_image(str(path))
    assert finding.where == str(path) and 'FileNotFoundError' in finding.detail


def turned(path, orientation, size=(12, 8)):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return picture(path, size=size, exif=exif)


@pytest.mark.parametrize(
    ('orientation', 'size', 'annotated', 'turns', 'found'),
    [
        (6, (12, 8), (8, 12), True, ''),
        (6, (12, 8), (12, 8), True, "color_type='color_ignore_orientation'"),
        (6, (12, 8), (12, 8), False, ''),
        (6, (12, 8), (8, 12), False, "color_type='color'"),
        (6, (12, 8), (9, 9), True, '8 x 12 pixels as loaded, and is annotated as 9 x 9'),
        (3, (12, 8), (12, 8), True, ''),
    ],
)
def test_sizes_tell_whether_annotations_lie_on_the_turned_image(tmp_path, orientation, size, annotated, turns, found):
    load = LoadImageFromFile(color_type='color' if turns else 'color_ignore_orientation')
    findings = list(inspect_image(turned(tmp_path / 'a.jpg', orientation, size), annotated, load))
    assert len(findings) == bool(found) and all(found in finding.detail for finding in findings)


@pytest.mark.parametrize('suffix', ['jpg', 'png', 'webp', 'tiff'])
@pytest.mark.parametrize('backend', ['cv2', 'pillow'])
@pytest.mark.parametrize('flag', ['color', 'color_ignore_orientation', 'unchanged'])
def test_loaders_turn_the_formats_that_we_say(tmp_path, suffix, backend, flag):
    path = turned(tmp_path / f'a.{suffix}', 6)
    loader = LoadImageFromFile(color_type=flag, imdecode_backend=backend)
    height, width = loader(dict(img_path=path))['img'].shape[:2]
    assert loaded_size(Path(path), turned_formats([loader])) == (width, height)


@pytest.mark.parametrize(('largest', 'found'), [(4095, ['image of 16 bits a channel']), (65535, [])])
def test_colours_of_16_bits(tmp_path, largest, found):
    """Before: 0 to 4,095 was read as 0 to 15 of 255 in silence."""
    pixels = np.linspace(0, largest, 96 * 3).reshape(8, 12, 3).astype(np.uint16)
    cv2.imwrite(str(tmp_path / 'a.png'), pixels)
    findings = list(inspect_image(str(tmp_path / 'a.png'), (12, 8), LoadImageFromFile()))
    assert [finding.kind[:26] for finding in findings] == found


def test_the_loader_of_the_config_judges_formats(tmp_path):
    """Before: a TIFF of five bands was called unknown although it trains. The pipeline runs behind this check."""
    path = str(tmp_path / 'a.tif')
    tifffile.imwrite(path, np.zeros((8, 12, 5), np.uint8), photometric='minisblack', planarconfig='contig')
    load = LoadImageFromFile(color_type='unchanged', imdecode_backend='tifffile')
    assert list(inspect_image(path, (12, 8), load)) == []


# --- label maps ---


def seg_map(path, values, size=(12, 8)):
    pixels = np.resize(np.array(values, np.uint8), (size[1], size[0]))
    Image.fromarray(pixels).save(path)
    return str(path)


@pytest.mark.parametrize(
    ('values', 'info', 'wrong'),
    [
        ([0, 1, 255], {}, None),
        ([0, 2], {}, '[2]'),
        ([0, 1, 2, 255], {'reduce_zero_label': True}, None),
        ([3], {'reduce_zero_label': True}, '[3]'),
        ([0, 7], {'label_map': {7: 1}}, None),
        # Two of four classes: mmseg reduces first.
        ([0, 1, 2, 3, 4, 255], {'reduce_zero_label': True, 'label_map': {0: 255, 1: 0, 2: 255, 3: 1}}, None),
        ([5], {'reduce_zero_label': True, 'label_map': {0: 255, 1: 0, 2: 255, 3: 1}}, '[5]'),
    ],
)
def test_labels_of_maps(tmp_path, values, info, wrong):
    findings, labels = inspect_labels(seg_map(tmp_path / 'm.png', values), 2, info)
    assert [finding.detail for finding in findings] == ([wrong] if wrong else []) and labels <= {0, 1}


def test_map_of_colours(tmp_path):
    [finding], _ = inspect_labels(picture(tmp_path / 'm.png'), 2, {})
    assert finding.kind.startswith('label map of several channels: expected one channel of class indices')
    assert finding.detail == '3 channels'
    # Palettes are indices, and any label will do where no count is known.
    for path, count in ((picture(tmp_path / 'p.png', 'P'), 256), (seg_map(tmp_path / 'm.png', [7]), None)):
        assert inspect_labels(path, count, {})[0] == []


# --- the command ---


@pytest.fixture
def data(digits, tmp_path, monkeypatch):
    """A copy of it to be broken."""
    monkeypatch.setenv('VITPLUG_DIGITS', str(tmp_path / 'digits'))
    return Path(shutil.copytree(digits, tmp_path / 'digits'))


CLASSIFICATION, SEGMENTATION, DETECTION = (
    str(next(CONFIGS.glob(f'{name}_1x*.py'))) for name in ('vit-mini-p4', 'vit-mini-p8_upernet', 'swin*w4_mask-rcnn')
)


@pytest.mark.integration
@pytest.mark.parametrize('config', [CLASSIFICATION, SEGMENTATION, DETECTION], ids=['classify', 'segment', 'detect'])
def test_good_data(data, config, capsys):
    assert main([config, '--workers', '2']) == 0
    assert capsys.readouterr().out.strip().endswith('0 errors, 0 notes')


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
    assert 'val: 10 images, 10 of 10 classes\n' in capsys.readouterr().out

    maps = [np.asarray(Image.open(path)) for path in (data / 'ade/annotations/training').iterdir()]
    labels = {int(label) for one in maps for label in np.unique(one)} - {255}
    assert main([SEGMENTATION, '--splits', 'train']) == 0
    assert f'train: 4 images, {len(labels)} of 11 classes\n' in capsys.readouterr().out


def test_labels_of_ignored_objects_and_of_images():
    instances = [dict(bbox_label=label, ignore_flag=label) for label in (0, 1)]
    assert labels_of(dict(instances=instances)) == [0] and labels_of(dict(gt_label=[0, 2])) == [0, 2]
    assert labels_of(dict(gt_label=10**20)) == [10**20] and labels_of({}) == []


@pytest.mark.integration
def test_everything_wrong_at_once(data, tmp_path, capsys):
    images = sorted((data / 'ade/images/training').iterdir())
    images[0].write_bytes(b'')
    images[1].write_bytes(images[1].read_bytes()[:200])
    maps = sorted((data / 'ade/annotations/training').iterdir())
    seg_map(maps[2], [0, 99], size=Image.open(maps[2]).size)
    seg_map(maps[3], [0], size=(3, 3))
    assert main([SEGMENTATION]) == 1
    out = capsys.readouterr().out
    for path, kind in (
        ('train_dataloader', 'missing or unmatched files or classes'),  # as a training says it
        (images[0], 'the pipeline fails'),
        (images[1], 'image cannot be read'),
        (maps[2], 'label map with labels outside of the 11 classes'),
        (images[3], 'image of another size than annotated'),
    ):
        assert re.search(rf'error  1 x {kind}\n +{path} ', out), (path, kind)
    assert '5 errors' in out


@pytest.mark.integration
def test_settings_are_compared_with_the_classes(data, capsys):
    options = ['model.roi_head.mask_head.num_classes=80', 'param_scheduler.1.end=900']
    assert main([DETECTION, '--splits', 'train', '--cfg-options', *options]) == 1
    out = capsys.readouterr().out
    assert 'settings for other classes than the 10 of the data\n' in out and '1 errors, 1 notes' in out
    assert 'model.roi_head.mask_head.num_classes (= 80: set it to 10)' in out and 'ends after 900 iterations' in out


@pytest.mark.integration
def test_labels_of_a_data_set_without_names_are_those_of_the_model(data, tmp_path, capsys):
    config = tmp_path / 'nameless.py'
    config.write_text(f"_base_ = '{SEGMENTATION}'\ntrain_dataloader = dict(dataset=dict(metainfo=dict(_delete_=True)))")
    assert main([str(config), '--splits', 'train']) == 0
    found = sorted((data / 'ade/annotations/training').iterdir())
    seg_map(found[0], [0, 11], size=Image.open(found[0]).size)
    assert main([str(config), '--splits', 'train']) == 1
    assert 'labels outside of the 11 classes' in capsys.readouterr().out


@pytest.mark.integration
def test_names_of_files_do_nothing_to_the_terminal(data, capsys):
    """Control characters and bytes that are not UTF-8, which a strict terminal cannot print."""
    image = min((data / 'ade/images/training').iterdir())
    image.rename(os.fsdecode(os.fsencode(image.parent) + b'/\x1b[31m\xe9' + os.fsencode(image.suffix)))
    main([SEGMENTATION, '--splits', 'train'])
    out = capsys.readouterr().out
    assert '\\x1b[31m\\udce9' in out and '\x1b' not in out


@pytest.mark.integration
def test_missing_data_is_an_error_not_a_traceback(data, capsys):
    shutil.rmtree(data / 'coco' / 'train')
    assert main([DETECTION, '--splits', 'train']) == 1
    assert str(data / 'coco' / 'train') in capsys.readouterr().out


def test_wrong_config(capsys):
    assert main(['nowhere.py']) == 2
    assert 'no such config: nowhere.py' in capsys.readouterr().err
