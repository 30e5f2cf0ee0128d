"""The files and folders behind a config's data sets are those that the libraries read."""

from mmengine.config import ConfigDict

from vitplug.config.parts import data_places
from vitplug.tasks.libraries import check_scope


def places(dataset, scope='mmpretrain'):
    cfg = ConfigDict(default_scope=scope, train_dataloader=dict(dataset=dataset))
    check_scope(cfg)
    return {key.removeprefix('train_dataloader.'): str(path) for key, path in data_places(cfg, 'train')}


def test_places_are_joined_as_the_library_joins_them():
    prefixes = dict(img_path='i', seg_map_path='a')
    assert places(dict(type='ADE20KDataset', data_root='d', data_prefix=prefixes), 'mmseg') == {
        'dataset.data_prefix.img_path': 'd/i',
        'dataset.data_prefix.seg_map_path': 'd/a',
    }
    dataset = dict(type='CocoDataset', data_root='d', data_prefix=dict(img='/abs'), ann_file='a.json')
    assert places(dataset, 'mmdet') == {'dataset.data_prefix.img': '/abs', 'dataset.ann_file': 'd/a.json'}


def test_data_sets_in_wrappers_have_places_of_their_own():
    """A built one has none."""
    leaf = dict(type='CustomDataset', data_root='d')
    inner = [leaf, dict(type='RepeatDataset', times=2, dataset=leaf), object()]
    assert list(places(dict(type='ConcatDataset', datasets=inner))) == [
        'dataset.datasets.0.data_prefix.img_path',
        'dataset.datasets.1.dataset.data_prefix.img_path',
    ]
