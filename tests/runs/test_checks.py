"""Every bad input ends in an error that names it and says what to do."""

import json
import sys
from pathlib import Path

import pytest
from mmengine.config import ConfigDict
from PIL import Image

from vitplug.files.annotations import read_json
from vitplug.runs.checks import data
from vitplug.tasks import check_scope


def config(**settings):
    return ConfigDict(default_scope='mmpretrain', **settings)


def write(path, content='x'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


# --- what is installed, and the machine ---


def test_scope_must_be_set():
    with pytest.raises(ValueError, match=r'sets no default_scope.*mmpretrain.*mmseg.*mmdet'):
        check_scope(ConfigDict())


def test_unknown_scope():
    with pytest.raises(ValueError, match=r"'mmnothing' is unknown.*mmpretrain"):
        check_scope(ConfigDict(default_scope='mmnothing'))


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'mmdet', None)
    with pytest.raises(ImportError, match=r"'mmdet' cannot be imported.*pip install -e \."):
        check_scope(ConfigDict(default_scope='mmdet'))


def test_broken_ops_say_how_to_build_them(monkeypatch):
    """Such as those of an mmcv that was built for another torch, without which mmdet imports and fails later."""
    monkeypatch.setitem(sys.modules, 'mmcv.ops', None)
    with pytest.raises(ImportError, match=r'ops do not load.*pip install --no-build-isolation '):
        check_scope(ConfigDict(default_scope='mmdet'))


@pytest.mark.parametrize('scope', ['mmpretrain', 'mmseg'])
def test_only_detection_needs_ops(monkeypatch, scope):
    monkeypatch.setitem(sys.modules, 'mmcv.ops', None)
    check_scope(ConfigDict(default_scope=scope))


# --- data ---


def check_files(dataset, scope):
    return data.check_files(dataset, scope, 'dataset')


def loader(root, kind='CustomDataset', **settings):
    return dict(dataset=dict(type=kind, data_root=str(root), **settings))


def test_missing_data_folder_names_path_and_command(tmp_path):
    made = dict(root=str(tmp_path), command='python make.py')
    cfg = config(data_help=made, train_dataloader=loader(tmp_path, data_prefix='train'))
    with pytest.raises(FileNotFoundError, match=f'no such data folder: {tmp_path}/train; .* python make.py'):
        data.check_data(cfg, splits=('train',))


def test_data_of_your_own_are_not_made_by_an_inherited_command(tmp_path):
    made = dict(root=str(tmp_path / 'digits'), command='python make.py')
    cfg = config(data_help=made, train_dataloader=loader(tmp_path / 'mine', data_prefix='train'))
    with pytest.raises(FileNotFoundError, match=r'mine/train$'):
        data.check_data(cfg, splits=('train',))
    metric = dict(type='CocoMetric', ann_file=str(tmp_path / 'digits' / 'val.json'))
    with pytest.raises(FileNotFoundError, match=r'val\.json; make the data with: python make\.py$'):
        data.check_data(config(data_help=made, val_evaluator=metric), splits=('val',))


def test_empty_data_folder(tmp_path):
    (tmp_path / 'train' / 'class').mkdir(parents=True)
    cfg = config(train_dataloader=loader(tmp_path, data_prefix='train'))
    with pytest.raises(FileNotFoundError, match=f'the data folder is empty: {tmp_path}/train'):
        data.check_data(cfg, splits=('train',))
    write(tmp_path / 'train' / 'class' / 'a.png')
    data.check_data(cfg, splits=('train',))


def test_only_the_splits_in_use_are_checked(tmp_path):
    write(tmp_path / 'train' / 'a.png')
    cfg = config(
        train_dataloader=loader(tmp_path, data_prefix='train'), test_dataloader=loader(tmp_path, data_prefix='test')
    )
    data.check_data(cfg, splits=('train', 'val'))
    with pytest.raises(FileNotFoundError, match='test'):
        data.check_data(cfg, splits=('test',))


def test_wrapped_datasets_are_found(tmp_path):
    inner = loader(tmp_path, data_prefix='missing')['dataset']
    wrapped = dict(type='RepeatDataset', times=2, dataset=dict(type='ConcatDataset', datasets=[inner]))
    with pytest.raises(FileNotFoundError, match='missing'):
        data.check_data(config(train_dataloader=dict(dataset=wrapped)), splits=('train',))


def test_datasets_that_fetch_their_files_are_left_alone(tmp_path):
    check_files(dict(type='CIFAR10', data_root=str(tmp_path / 'later'), split='train'), 'mmpretrain')


@pytest.fixture
def seg(tmp_path):
    for name in ('a', 'b', 'c'):
        write(tmp_path / 'images' / f'{name}.png')
        write(tmp_path / 'maps' / f'{name}.png')
    prefix = dict(img_path='images', seg_map_path='maps')
    return tmp_path, loader(tmp_path, 'BaseSegDataset', data_prefix=prefix, img_suffix='.png')['dataset']


def test_matching_images_and_maps(seg):
    write(seg[0] / 'images' / '._a.png')  # left by macOS, and overlooked by data sets
    check_files(seg[1], 'mmseg')


def test_file_name_endings_come_from_the_class(tmp_path):
    write(tmp_path / 'images' / 'town_leftImg8bit.png')
    write(tmp_path / 'maps' / 'town_gtFine_labelTrainIds.png')
    prefix = dict(img_path='images', seg_map_path='maps')
    check_files(loader(tmp_path, 'CityscapesDataset', data_prefix=prefix)['dataset'], 'mmseg')


def test_wrong_image_ending_is_no_match(seg):
    with pytest.raises(ValueError, match=r'no images are left.*do not end in \.jpg'):
        check_files({**seg[1], 'img_suffix': '.jpg'}, 'mmseg')


def test_unreadable_annotation_file_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, 'Permission denied', str(path))  # root may read everything

    write(tmp_path / 'ann.json', '{}')
    monkeypatch.setattr(Path, 'read_bytes', refuse)
    with pytest.raises(PermissionError, match=f'{tmp_path}/ann.json'):
        read_json(tmp_path / 'ann.json')


GOOD = dict(
    images=[dict(id=1, file_name='a.png', width=8, height=8)],
    annotations=[dict(id=1, image_id=1, category_id=1, bbox=[0, 0, 4, 4], area=16)],
    categories=[dict(id=1, name='person')],
)


@pytest.mark.parametrize(
    'content, message',
    [
        ('', 'not valid JSON'),
        ('{"images": [', 'not valid JSON'),
        ('{}', 'is empty'),
        ('7', 'is no COCO file'),
        ('\ufeff{}', 'not valid JSON'),
        (json.dumps({**GOOD, 'images': []}), 'no images'),
        (json.dumps({**GOOD, 'annotations': []}), 'no annotations'),
    ],
)
def test_broken_coco_files(tmp_path, content, message):
    (tmp_path / 'train').mkdir()
    Image.new('RGB', (8, 8)).save(tmp_path / 'train' / 'a.png')
    write(tmp_path / 'ann.json', content)
    person = dict(metainfo=dict(classes=('person',)))
    dataset = loader(tmp_path, 'CocoDataset', ann_file='ann.json', data_prefix=dict(img='train'), **person)['dataset']
    with pytest.raises(ValueError, match=f'{message}.*{tmp_path}/ann.json|{tmp_path}/ann.json.*{message}') as error:
        check_files(dataset, 'mmdet')
    assert message in str(error.value)
    write(tmp_path / 'ann.json', json.dumps(GOOD))
    check_files(dataset, 'mmdet')


def test_missing_annotation_file(tmp_path):
    write(tmp_path / 'train' / 'a.png')
    dataset = loader(tmp_path, 'CocoDataset', ann_file='ann.json', data_prefix=dict(img='train'))['dataset']
    with pytest.raises(FileNotFoundError, match=f'no such annotation file: {tmp_path}/ann.json'):
        check_files(dataset, 'mmdet')


def test_annotation_file_of_the_evaluator(tmp_path):
    metrics = [dict(type='CocoMetric', ann_file=str(tmp_path / 'gone.json'))]
    with pytest.raises(FileNotFoundError, match=r'gone\.json'):
        data.check_data(config(val_evaluator=metrics), splits=('val',))


# --- scopes ---


@pytest.mark.parametrize('scope', [[], -0.5])
def test_default_scope_that_is_no_name(scope):
    with pytest.raises(ValueError, match=r'default_scope = .* is no name of a package: set it to one of mmpretrain'):
        check_scope(ConfigDict(default_scope=scope))
