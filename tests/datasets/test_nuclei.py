"""The converter of nuclei: boxes and masks of the made COCO files, and wrong folders that are refused."""

import json
from collections import Counter

import numpy as np
import pytest
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from refused_data import check_refused

from vitplug.config.reading import read_config
from vitplug.datasets.nuclei import convert

CONFIG = 'configs/nuclei/swin-mini-p4-w4_mask-rcnn_1xb8-400i_nuclei-128x128.py'
# By the SHA-256 of their names, b is in val and the others are not.
NAMES = 'abcfg'
SHAPE = (20, 30)


def put(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def nucleus(top, left, height, width):
    mask = np.zeros(SHAPE, np.uint8)
    mask[top : top + height, left : left + width] = 255
    mask[top, left] = 0  # not a rectangle
    return mask


@pytest.fixture
def public(tmp_path):
    """Five images with an alpha channel, as published, and two nuclei each."""
    root, rng = tmp_path / 'stage1_train', np.random.default_rng(0)
    for name in NAMES:
        put(root / name / f'images/{name}.png', rng.integers(0, 256, (*SHAPE, 4), np.uint8))
        put(root / name / 'masks/first.png', nucleus(2, 3, 5, 7))
        put(root / name / 'masks/second.png', nucleus(10, 20, 10, 10))
        for hidden in (f'images/._{name}.png', 'masks/._first.png'):
            (root / name / hidden).write_bytes(b'of a file manager')
    return root


def quietly(source, out):
    return convert(source, out, log=lambda line: None)


def test_every_image_is_in_one_split_with_its_masks(public, tmp_path):
    from pycocotools import mask as coco

    out = quietly(public, tmp_path / 'out')
    tables = {split: json.loads((out / f'{split}.json').read_text()) for split in ('train', 'val')}
    files = {split: {image['file_name'] for image in table['images']} for split, table in tables.items()}
    assert files == {split: {path.name for path in (out / split).iterdir()} for split in files}
    assert sorted(files['train'] | files['val']) == [f'{name}.png' for name in NAMES]
    assert files['val'] and not files['train'] & files['val']
    for table in tables.values():
        numbers = Counter(annotation['image_id'] for annotation in table['annotations'])
        assert numbers == {image['id']: 2 for image in table['images']}
        first, second = table['annotations'][:2]
        assert (first['bbox'], first['area']) == ([3, 2, 7, 5], 34)
        assert (second['bbox'], second['area']) == ([20, 10, 10, 10], 99)
        assert np.array_equal(coco.decode(second['segmentation']) * 255, nucleus(10, 20, 10, 10))
    name = min(files['train'])
    original = np.array(Image.open(public / name[0] / 'images' / name))
    assert np.array_equal(np.array(Image.open(out / 'train' / name)), original[..., :3])


def test_the_config_reads_the_result(public, tmp_path, monkeypatch):
    monkeypatch.setenv('VITPLUG_NUCLEI', str(quietly(public, tmp_path / 'out')))
    cfg = read_config(CONFIG)
    init_default_scope('mmdet')
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    item = dataset[0]['data_samples']
    assert item.ori_shape == SHAPE and item.gt_instances.labels.tolist() == [0, 0]
    assert [mask.sum() for mask in item.gt_instances.masks.masks] == [34, 99]


def test_a_second_call_changes_nothing_and_another_content_is_kept(public, tmp_path):
    out = quietly(public, tmp_path / 'out')
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*.*')}
    quietly(public, out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*.*')} == before
    put(public / 'a/masks/third.png', nucleus(0, 0, 2, 2))
    with pytest.raises(FileExistsError, match=r'\.json exists with another content and is not overwritten'):
        quietly(public, out)


@pytest.mark.parametrize(
    ('change', 'kind', 'message'),
    [
        (
            lambda root: root.rename(root.with_name('moved')),
            FileNotFoundError,
            r'expected folders IMAGE/images and IMAGE/masks',
        ),
        (lambda root: (root / 'a/images/a.png').unlink(), FileNotFoundError, r'a/images has 0 PNG files'),
        (lambda root: put(root / 'a/images/b.png', nucleus(0, 0, 2, 2)), FileNotFoundError, r'has 2 PNG files'),
        (lambda root: (root / 'f/masks').rename(root / 'f/mask'), FileNotFoundError, r'a mask for each nucleus'),
        (
            lambda root: put(root / 'b/masks/first.png', np.ones((20, 31), np.uint8)),
            ValueError,
            r'first\.png has 31 x 20 pixels, its image 30 x 20',
        ),
        (
            lambda root: put(root / 'c/masks/first.png', np.zeros(SHAPE, np.uint8)),
            ValueError,
            r'first\.png is empty: remove it',
        ),
        (
            lambda root: (root / 'c/images/c.png').write_bytes(b'no image'),
            ValueError,
            r'c\.png is no image that can be read',
        ),
    ],
)
def test_wrong_folders_are_refused_before_anything_is_written(public, change, kind, message):
    check_refused(quietly, public, change, kind, message)


def test_a_split_without_images_is_refused(public, tmp_path):
    (public / 'b').rename(public.parent / 'elsewhere')
    with pytest.raises(ValueError, match=r'none of its 4 images is in val: name the whole data set'):
        quietly(public, tmp_path / 'out')
