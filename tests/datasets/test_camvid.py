"""CamVid's converter: both forms give the same files, and wrong ones are refused before anything is written."""

import numpy as np
import pytest
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from refused_data import check_refused

from vitplug.config.reading import read_config
from vitplug.datasets.camvid import SPLITS, convert

CONFIG = 'configs/camvid/vit-mini-p8_upernet_1xb8-1200i_camvid-192x192.py'


def draw(root, images, maps, void, suffix='png'):
    rng = np.random.default_rng(0)
    for split in SPLITS:
        for name in ('a', 'b'):
            pixels = rng.integers(0, 256, (6, 8, 3), np.uint8)
            labels = rng.integers(0, 12, (6, 8)).astype(np.uint8)
            labels[labels == 11] = void
            for folder, array, end in ((images, pixels, suffix), (maps, labels, 'png')):
                path = root / folder.format(split) / f'{name}.{end}'
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(path)
                path.with_name(f'._{path.name}').write_bytes(b'of a file manager')
    return root


@pytest.fixture
def segnet(tmp_path):
    return draw(tmp_path / 'segnet', '{}', '{}annot', 11)


def quietly(source, out):
    return convert(source, out, log=lambda line: None)


def files(root):
    return {str(path.relative_to(root)): np.array(Image.open(path)) for path in root.rglob('*.png')}


def test_both_forms_give_the_same(segnet, tmp_path):
    other = draw(tmp_path / 'other', 'images/{}', 'annotations/{}', 255)
    found = [files(quietly(source, tmp_path / f'out {source.name}')) for source in (segnet, other)]
    assert found[0].keys() == found[1].keys() and len(found[0]) == 12
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])
    before = np.array(Image.open(segnet / 'valannot/b.png'))
    assert 11 in before
    assert np.array_equal(found[0]['annotations/val/b.png'], np.where(before == 11, 255, before))


def test_the_config_reads_the_result(segnet, tmp_path, monkeypatch):
    monkeypatch.setenv('VITPLUG_CAMVID', str(quietly(segnet, tmp_path / 'camvid')))
    cfg = read_config(CONFIG)
    init_default_scope('mmseg')
    for split in SPLITS:
        dataset = DATASETS.build(cfg[f'{split}_dataloader'].dataset)
        assert len(dataset) == 2
    item = dataset[0]
    assert item['inputs'].shape == (3, 240, 320) and item['data_samples'].gt_sem_seg.shape == (6, 8)
    expected = np.array(Image.open(segnet / 'testannot/a.png'))
    assert np.array_equal(item['data_samples'].gt_sem_seg.data[0] == 255, expected == 11)


def test_a_stopped_call_goes_on_and_overwrites_nothing(segnet, tmp_path):
    out = quietly(segnet, tmp_path / 'out')
    (out / 'images/test/b.png').unlink()
    kept = (out / 'images/test/a.png').stat().st_mtime_ns
    quietly(segnet, out)
    assert (out / 'images/test/b.png').is_file() and (out / 'images/test/a.png').stat().st_mtime_ns == kept
    Image.new('RGB', (8, 6)).save(out / 'images/test/a.png')
    with pytest.raises(FileExistsError, match=r'a\.png exists with another content and is not overwritten'):
        quietly(segnet, out)


def label(value):
    return lambda root: Image.fromarray(np.full((6, 8), value, np.uint8)).save(root / 'testannot/a.png')


@pytest.mark.parametrize(
    ('change', 'kind', 'message'),
    [
        (
            lambda root: (root / 'valannot').rename(root / 'other'),
            FileNotFoundError,
            r'expected the folders .*valannot',
        ),
        (lambda root: (root / 'val/a.png').unlink(), ValueError, r'val has 1 images and .*without a partner: a'),
        (label(12), ValueError, r'testannot/a.png: label 12 is none of 0 to 10, nor 11 for void'),
        (
            lambda root: Image.new('L', (4, 6)).save(root / 'testannot/a.png'),
            ValueError,
            r'a.png has 4 x 6 pixels, its image 8 x 6',
        ),
        (lambda root: Image.new('RGB', (8, 6)).save(root / 'testannot/a.png'), ValueError, r'one channel of 8 bit'),
        (
            lambda root: (root / 'test/a.png').write_bytes(b'no image'),
            ValueError,
            r'a.png is no image that can be read',
        ),
    ],
)
def test_wrong_folders_are_refused_before_anything_is_written(segnet, change, kind, message):
    check_refused(quietly, segnet, change, kind, message)
