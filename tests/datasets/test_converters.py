"""The converters of CamVid and nuclei: what their configs read, and wrong folders that are refused."""

import json
from collections import Counter

import numpy as np
import pytest
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image

from vitplug.config.reading import read_config
from vitplug.datasets import camvid, nuclei

CAMVID = 'configs/camvid/vit-mini-p8_upernet_1xb8-1200i_camvid-192x192.py'
NUCLEI = 'configs/nuclei/swin-mini-p4-w4_mask-rcnn_1xb8-400i_nuclei-128x128.py'
# By the SHA-256 of their names, b is in val and the others are not.
NAMES, SHAPE = 'abcfg', (20, 30)


def put(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    path.with_name(f'._{path.name}').write_bytes(b'of a file manager')


def nucleus(top, left, height, width):
    mask = np.zeros(SHAPE, np.uint8)
    mask[top : top + height, left : left + width] = 255
    mask[top, left] = 0  # not a rectangle
    return mask


@pytest.fixture
def segnet(tmp_path):
    root, rng = tmp_path / 'segnet', np.random.default_rng(0)
    for split in camvid.SPLITS:
        for name in ('a.png', 'b.png'):
            put(root / split / name, rng.integers(0, 256, (6, 8, 3), np.uint8))
            put(root / f'{split}annot' / name, rng.integers(0, 12, (6, 8)).astype(np.uint8))
    return root


@pytest.fixture
def stage1(tmp_path):
    """Five images with an alpha channel, as published, and two nuclei each."""
    root, rng = tmp_path / 'stage1_train', np.random.default_rng(0)
    for name in NAMES:
        put(root / name / f'images/{name}.png', rng.integers(0, 256, (*SHAPE, 4), np.uint8))
        put(root / name / 'masks/first.png', nucleus(2, 3, 5, 7))
        put(root / name / 'masks/second.png', nucleus(10, 20, 10, 10))
    return root


def converted(module, source):
    out = source.with_name(f'{source.name}.out')
    module.convert(source, out)
    return out


def test_camvid_keeps_its_pixels(segnet):
    out = converted(camvid, segnet)
    for split in camvid.SPLITS:
        for name in ('a.png', 'b.png'):
            assert np.array_equal(Image.open(out / 'images' / split / name), Image.open(segnet / split / name))
            labels = np.array(Image.open(segnet / f'{split}annot' / name))
            found = np.array(Image.open(out / 'annotations' / split / name))
            assert np.array_equal(found, np.where(labels == 11, 255, labels)) and (labels == 11).any()
    assert len([*out.rglob('*.png')]) == 12
    with pytest.raises(FileExistsError, match='has files'):
        converted(camvid, segnet)


def test_config_reads_camvid(segnet, monkeypatch):
    monkeypatch.setenv('VITPLUG_CAMVID', str(converted(camvid, segnet)))
    cfg = read_config(CAMVID)
    init_default_scope('mmseg')
    for split in camvid.SPLITS:
        dataset = DATASETS.build(cfg[f'{split}_dataloader'].dataset)
        assert len(dataset) == 2
    item = dataset[0]
    assert item['inputs'].shape == (3, 240, 320)
    expected = np.array(Image.open(segnet / 'testannot/a.png'))
    assert np.array_equal(item['data_samples'].gt_sem_seg.data[0] == 255, expected == 11)


def test_every_nucleus_is_in_one_split(stage1):
    out = converted(nuclei, stage1)
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
    original = np.array(Image.open(stage1 / 'a/images/a.png'))
    assert np.array_equal(np.array(Image.open(out / 'train/a.png')), original[..., :3])
    labels = np.array(Image.open(out / 'maps/train/a.png'))
    assert np.array_equal(labels, np.maximum(nucleus(2, 3, 5, 7), nucleus(10, 20, 10, 10)) // 255)


def test_config_reads_nuclei(stage1, monkeypatch):
    monkeypatch.setenv('VITPLUG_NUCLEI', str(converted(nuclei, stage1)))
    init_default_scope('mmdet')
    item = DATASETS.build(read_config(NUCLEI).test_dataloader.dataset)[0]['data_samples']
    assert item.ori_shape == SHAPE and item.gt_instances.labels.tolist() == [0, 0]
    assert [mask.sum() for mask in item.gt_instances.masks.masks] == [34, 99]


@pytest.mark.parametrize(
    ('module', 'change', 'message'),
    [
        (camvid, lambda root: root.rename(root.with_name('moved')), r'expected PNG files in train and trainannot'),
        (camvid, lambda root: (root / 'val/a.png').unlink(), r'val: a and so 1 in all have no image or no label map'),
        (nuclei, lambda root: root.rename(root.with_name('moved')), r'expected folders IMAGE/images and IMAGE/masks'),
        (nuclei, lambda root: (root / 'a/images/a.png').unlink(), r'a has 0 images and 2 masks'),
        (nuclei, lambda root: (root / 'f/masks').rename(root / 'f/mask'), r'f has 1 images and 0 masks'),
        (
            nuclei,
            lambda root: put(root / 'b/masks/first.png', np.ones((20, 31), np.uint8)),
            r'first\.png has 31 x 20 pixels, its image 30 x 20',
        ),
    ],
)
def test_wrong_folders_are_refused_before_anything_is_written(module, change, message, request):
    source = request.getfixturevalue('segnet' if module is camvid else 'stage1')
    change(source)
    with pytest.raises((ValueError, OSError), match=message):
        converted(module, source)
    assert not source.with_name(f'{source.name}.out').exists()
