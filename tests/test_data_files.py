"""The files and folders behind a config's data sets are those that the libraries read."""

from pathlib import Path

import pytest
from mmengine.config import ConfigDict

from vitplug.config.data_files import data_places
from vitplug.tasks import check_scope


def places(dataset, scope='mmpretrain', **more):
    cfg = ConfigDict(default_scope=scope, train_dataloader=dict(dataset=dataset), **more)
    check_scope(cfg)
    return {key.removeprefix('train_dataloader.'): str(path) for key, path in data_places(cfg, ('train',))}


def read_by(dataset, scope):
    """What the library's own class joins, without reading it."""
    from mmengine.registry import DATASETS, init_default_scope

    init_default_scope(scope)
    return DATASETS.build(ConfigDict(**dataset, lazy_init=True))


@pytest.mark.parametrize(
    ('scope', 'dataset'),
    [
        ('mmpretrain', dict(type='CustomDataset', data_root='d')),
        ('mmpretrain', dict(type='CustomDataset', data_root='d', data_prefix='train')),
        ('mmpretrain', dict(type='CustomDataset', data_prefix='d/train')),
        ('mmpretrain', dict(type='ImageNet', data_root='d', data_prefix=dict(img_path='val'), ann_file='meta/val.txt')),
        ('mmseg', dict(type='ADE20KDataset', data_root='d', data_prefix=dict(img_path='i', seg_map_path='a'))),
        ('mmdet', dict(type='CocoDataset', data_root='d', data_prefix=dict(img='i/'), ann_file='a.json')),
        ('mmdet', dict(type='CocoDataset', data_root='d', data_prefix=dict(img='/abs'), ann_file='/a.json')),
    ],
)
def test_places_are_joined_as_the_library_joins_them(scope, dataset):
    built = read_by(dataset, scope)
    expected = {f'dataset.data_prefix.{key}': path for key, path in built.data_prefix.items()}
    expected |= {'dataset.ann_file': built.ann_file} if built.ann_file else {}
    assert places(dataset, scope) == {key: str(Path(path)) for key, path in expected.items()}


def test_a_split_is_a_folder_of_the_root_as_in_imagenet(tmp_path):
    (tmp_path / 'val').mkdir()
    dataset = dict(type='ImageNet', data_root=str(tmp_path), split='val')
    assert places(dataset) == {'dataset.data_prefix.img_path': f'{tmp_path}/val'}
    (tmp_path / 'meta').mkdir()
    (tmp_path / 'meta/val.txt').write_text('')
    built = read_by(dataset, 'mmpretrain')
    assert places(dataset) == {
        'dataset.data_prefix.img_path': built.data_prefix['img_path'],
        'dataset.ann_file': built.ann_file,
    }


def test_data_sets_in_wrappers_have_places_of_their_own():
    leaf = dict(type='CustomDataset', data_root='d')
    dataset = dict(type='ConcatDataset', datasets=[leaf, dict(type='RepeatDataset', times=2, dataset=leaf)])
    assert list(places(dataset)) == [
        'dataset.datasets.0.data_prefix.img_path',
        'dataset.datasets.1.dataset.data_prefix.img_path',
    ]


@pytest.mark.parametrize(
    'dataset',
    [
        dict(type='CIFAR10', data_root='d', split='train'),  # fetches its files
        dict(type='CustomDataset', data_root='s3://bucket/d'),
        dict(type='CustomDataset', data_root='d', backend_args=dict(backend='petrel')),
        dict(type='NoSuchDataset'),
        dict(type='ConcatDataset', datasets=[object()]),
    ],
)
def test_what_is_not_on_this_machine_has_no_place(dataset):
    assert places(dataset) == {}


def test_annotations_of_evaluators_are_places():
    cfg = ConfigDict(
        default_scope='mmdet',
        val_dataloader=None,
        val_evaluator=[dict(type='CocoMetric', ann_file='d/a.json'), dict(type='Other')],
        test_evaluator=dict(type='CocoMetric', ann_file='d/b.json'),
    )
    assert dict(data_places(cfg)) == {
        'val_evaluator.0.ann_file': Path('d/a.json'),
        'test_evaluator.0.ann_file': Path('d/b.json'),
    }
