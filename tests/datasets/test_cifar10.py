"""CIFAR-10's converter: photographs and classes of the binary files, and wrong files that are refused."""

import numpy as np
import pytest
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from refused_data import check_refused

from vitplug.config.reading import read_config
from vitplug.datasets.cifar10 import BATCHES, CLASSES, convert

CONFIG = 'configs/cifar10/vit-mini-p4_1xb64-1500i_cifar10-32x32.py'
RECORDS = 12


@pytest.fixture
def binary(tmp_path):
    """The six files with 12 photographs each; class of record i: i % 10."""
    folder, rng = tmp_path / 'unpacked/cifar-10-batches-bin', np.random.default_rng(0)
    folder.mkdir(parents=True)
    (folder / 'batches.meta.txt').write_text('\n'.join(CLASSES) + '\n\n')
    for name in (*BATCHES['train'], *BATCHES['test']):
        planes = rng.integers(0, 256, (RECORDS, 3072), np.uint8)
        labels = np.arange(RECORDS, dtype=np.uint8)[:, None] % 10
        np.hstack([labels, planes]).tofile(folder / f'{name}.bin')
    return folder


def quietly(source, out):
    return convert(source, out, RECORDS, log=lambda line: None)


def test_photographs_are_those_of_the_records(binary, tmp_path):
    out = quietly(binary.parent, tmp_path / 'out')
    assert len([*out.glob('train/*/*.png')]) == 5 * RECORDS and len([*out.glob('test/*/*.png')]) == RECORDS
    # Record 11 of the third file, byte by byte: class 1, then a plane of each colour.
    record = (binary / 'data_batch_3.bin').read_bytes()[11 * 3073 : 12 * 3073]
    image = Image.open(out / 'train' / CLASSES[record[0]] / 'data_batch_3_00011.png')
    assert record[0] == 1 and image.size == (32, 32) and image.mode == 'RGB'
    for x, y in ((0, 0), (31, 0), (5, 17)):
        assert image.getpixel((x, y)) == tuple(record[1 + 1024 * plane + 32 * y + x] for plane in range(3))


def test_the_config_reads_the_result(binary, tmp_path, monkeypatch):
    monkeypatch.setenv('VITPLUG_CIFAR10', str(quietly(binary, tmp_path / 'out')))
    cfg = read_config(CONFIG)
    init_default_scope('mmpretrain')
    train, test = (DATASETS.build(cfg[f'{split}_dataloader'].dataset) for split in ('train', 'test'))
    assert (len(train), len(test)) == (5 * RECORDS, RECORDS)
    assert {int(test[i]['data_samples'].gt_label) for i in range(RECORDS)} == set(range(10))


def test_a_stopped_call_goes_on_and_overwrites_nothing(binary, tmp_path):
    out = quietly(binary, tmp_path / 'out')
    first, second = sorted(out.glob('test/airplane/*.png'))
    first.unlink()
    before = second.stat().st_mtime_ns
    quietly(binary, out)
    assert first.is_file() and second.stat().st_mtime_ns == before
    Image.new('RGB', (32, 32)).save(first)
    with pytest.raises(FileExistsError, match=r'test_batch_00000\.png exists with another content'):
        quietly(binary, out)


def other_class(folder):
    data = bytearray((folder / 'test_batch.bin').read_bytes())
    data[3073 * 4] = 10
    (folder / 'test_batch.bin').write_bytes(data)


@pytest.mark.parametrize(
    ('change', 'kind', 'message'),
    [
        (
            lambda folder: (folder / 'data_batch_5.bin').unlink(),
            FileNotFoundError,
            r'has no data_batch_5\.bin: unpack cifar-10-binary\.tar\.gz of https://',
        ),
        (
            lambda folder: (folder / 'test_batch.bin').write_bytes(bytes(3073)),
            ValueError,
            r'test_batch\.bin: has 3,073 bytes, expected 36,876',
        ),
        (other_class, ValueError, r'test_batch\.bin: class 10 of record 4 is none of 0 to 9'),
        (
            lambda folder: (folder / 'batches.meta.txt').write_text('apple\nbear\n'),
            ValueError,
            r'expected the classes airplane, .*, found apple, bear',
        ),
    ],
)
def test_wrong_files_are_refused_before_anything_is_written(binary, change, kind, message):
    check_refused(quietly, binary, change, kind, message)
