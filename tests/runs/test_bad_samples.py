"""One broken file among many is named and replaced; one ends a validation."""

from types import SimpleNamespace

import mmpretrain.datasets  # noqa: F401
import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image
from toy_training import ToyLoop

from vitplug.errors import TrainingStopped
from vitplug.runs.hooks.bad_samples import BadSampleHook, wrap_loading


@pytest.fixture
def dataset(tmp_path):
    """Images of two classes, one of them cut short."""
    init_default_scope('mmpretrain')
    for kind in ('cat', 'dog'):
        (tmp_path / kind).mkdir()
        for number in range(4):
            pixels = np.full((8, 8, 3), 60 * number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / kind / f'{number}.png')
    (tmp_path / 'cat' / '1.png').write_bytes((tmp_path / 'cat' / '1.png').read_bytes()[:40])
    inner = dict(
        type='CustomDataset',
        data_root=str(tmp_path),
        pipeline=[dict(type='LoadImageFromFile'), dict(type='PackInputs')],
    )
    return DATASETS.build(dict(type='RepeatDataset', times=2, dataset=inner))


def test_a_broken_image_is_named_once_and_replaced(dataset, mm_log):
    wrap_loading(dataset, 20)
    samples = [dataset[index] for index in range(len(dataset))]
    assert len(samples) == 16 and all(sample['inputs'].shape == (3, 8, 8) for sample in samples)
    assert mm_log.text.count('cannot use') == 1 and 'another sample takes its place' in mm_log.text


def test_one_ends_a_validation(dataset):
    """mmpretrain's data sets draw another one in validations, too."""
    loop = ToyLoop(dataloader=SimpleNamespace(dataset=dataset))
    BadSampleHook().before_run(SimpleNamespace(_train_loop={}, _val_loop=loop, _test_loop={}))
    with pytest.raises(TrainingStopped, match=r'cannot use .*cat/1\.png: .*: repair or remove it'):
        dataset[1]


def test_too_many_in_a_row_end_the_training(dataset, mm_log, tmp_path):
    for path in tmp_path.glob('*/*.png'):
        path.write_bytes(b'')
    wrap_loading(dataset, 5)
    with pytest.raises(TrainingStopped, match=r'cannot use .*\.png: .*\(5 in a row\)'):
        dataset[0]


def test_an_error_of_the_annotations_is_no_broken_file(dataset):
    """As mmdet's KeyError of objects without masks."""
    wrap_loading(dataset, 20)
    dataset.dataset.pipeline.transforms[0].step = lambda results: results['mask']
    with pytest.raises(KeyError, match='mask'):
        dataset[0]


def test_data_sets_inside_wrappers_are_found(dataset, mm_log):
    wrap_loading(ConcatDataset([dataset.dataset]), 20)
    assert dataset[1]['inputs'].shape == (3, 8, 8)
