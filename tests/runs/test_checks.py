"""Every bad input ends in an error that names it and says what to do."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from mmengine.config import ConfigDict
from PIL import Image

from vitplug.files import named
from vitplug.files.annotations import read_json
from vitplug.runs.checks import check_testing, check_training, data, environment, settings
from vitplug.runs.metrics import check_save_best
from vitplug.tasks import check_scope


def config(**settings):
    return ConfigDict(default_scope='mmpretrain', **settings)


def write(path, content='x'):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


# --- settings ---


@pytest.mark.parametrize('interval', [0, -1, 1.5, None, True])
def test_interval_of_validations(interval):
    settings.check_validations(config(train_cfg=dict(val_interval=2)))
    settings.check_validations(config(train_cfg=dict(max_epochs=1)))
    with pytest.raises(ValueError, match=rf'train_cfg\.val_interval = {interval}: expected a whole number from 1 on'):
        settings.check_validations(config(train_cfg=dict(val_interval=interval)))


@pytest.mark.parametrize(
    ('evaluator', 'good', 'wrong', 'there'),
    [
        (dict(type='Accuracy'), 'accuracy/top1', 'mIoU', 'accuracy/top1'),
        (dict(type='mmseg.IoUMetric'), ['mIoU', 'aAcc'], ['mIoU', 'mIou'], "aAcc; did you mean 'mIoU'"),
        (dict(type='CocoMetric', metric=['bbox', 'segm']), 'coco/segm_mAP_50', 'bbox_mAP', 'coco/bbox_mAP'),
    ],
)
def test_metric_of_the_best_checkpoint(evaluator, good, wrong, there):
    def best(name, one=evaluator):
        return config(val_evaluator=one, default_hooks=dict(checkpoint=dict(save_best=name)))

    for name in (good, 'auto', None):
        check_save_best(best(name))
    with pytest.raises(ValueError, match=rf'checkpoint\.save_best = .*: no validation gives it; there are .*{there}'):
        check_save_best(best(wrong))
    # Of these the names are not known.
    check_save_best(best('mine', dict(type='MyMetric')))
    check_save_best(best('coco/AR@100', dict(type='CocoMetric', metric='proposal')))


# --- files named on the command line ---


def test_missing_config_suggests_its_neighbours(tmp_path):
    write(tmp_path / 'vit-mini.py')
    write(tmp_path / 'swin.py')
    with pytest.raises(FileNotFoundError, match=r'no such config: .*vit-mina\.py \(did you mean vit-mini\.py\?\)'):
        named.check_config_file(str(tmp_path / 'vit-mina.py'))


def test_missing_folder_of_a_config_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'there is no folder .*nowhere'):
        named.check_config_file(str(tmp_path / 'nowhere' / 'a.py'))


def test_missing_checkpoint_names_option_and_path(tmp_path):
    write(tmp_path / 'epoch_10.pth')
    with pytest.raises(FileNotFoundError, match=r'--resume: no such checkpoint: .*epoch_1\.pth .*epoch_10\.pth'):
        named.check_weights(str(tmp_path / 'epoch_1.pth'), option='--resume')


def test_folder_is_no_checkpoint_but_may_hold_one(tmp_path):
    with pytest.raises(ValueError, match=r'is a folder: name a checkpoint; there is none in this folder'):
        named.check_weights(str(tmp_path), option='load_from')
    write(tmp_path / 'epoch_2.pth')
    with pytest.raises(ValueError, match=rf'load_from: {tmp_path} is a folder: .* such as {tmp_path}/epoch_2\.pth'):
        named.check_weights(str(tmp_path), option='load_from')


@pytest.mark.parametrize('path', [None, 'https://example.org/a.pth'])
def test_no_checkpoint_and_an_address_are_left_alone(path):
    named.check_weights(path, option='--resume')


def test_work_dir_must_be_a_folder(tmp_path):
    write(tmp_path / 'file')
    with pytest.raises(NotADirectoryError, match=f'{tmp_path}/file is a file'):
        named.check_writable(str(tmp_path / 'file' / 'work'))
    named.check_writable(str(tmp_path / 'new' / 'work'))


def test_work_dir_must_be_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(named.os, 'access', lambda path, mode: False)  # root may write everywhere
    with pytest.raises(PermissionError, match=f'cannot write into {tmp_path}'):
        named.check_writable(str(tmp_path / 'work'))


def test_results_go_to_a_pickle():
    named.check_results_file(None)
    named.check_results_file('a.pkl')
    with pytest.raises(ValueError, match=r'a\.json must end in \.pkl'):
        named.check_results_file('a.json')


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


def test_mixed_precision_needs_an_accelerator(monkeypatch):
    cfg = config(optim_wrapper=dict(type='AmpOptimWrapper'))
    monkeypatch.setattr(environment, 'get_device', lambda: 'cpu')
    with pytest.raises(ValueError, match=r'--amp.*accelerator.*cpu'):
        environment.check_amp(cfg)
    monkeypatch.setattr(environment, 'get_device', lambda: 'cuda')
    environment.check_amp(cfg)


@pytest.mark.parametrize('rate', [-1.0, 1e39, float('nan'), float('inf'), '0.1', True])
def test_learning_rate_is_a_number_that_a_step_can_take(rate):
    cfg = config(optim_wrapper=dict(optimizer=dict(type='SGD', lr=rate)))
    with pytest.raises(ValueError, match=r'optim_wrapper\.optimizer\.lr = .*: expected a number from 0 to 1e\+30'):
        settings.check_optimizer(cfg)


@pytest.mark.parametrize('kind', ['SGD', 'AdamW'])
def test_highest_learning_rate_overflows_in_no_step(kind):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = getattr(torch.optim, kind)([weight], lr=settings.HIGHEST_RATE)
    weight.grad = torch.ones(2)
    optimizer.step()
    cfg = config(optim_wrapper=dict(optimizer=dict(type=kind, lr=settings.HIGHEST_RATE)))
    settings.check_optimizer(cfg)


@pytest.mark.parametrize(
    ('schedule', 'loop', 'found'),
    [
        (dict(by_epoch=True, end=300), dict(max_epochs=30), 'after 300 epochs, the training after 30'),
        (dict(end=31), dict(max_epochs=30), 'after 31 epochs'),
        (dict(by_epoch=False, end=400), dict(max_iters=40), 'after 400 iterations, the training after 40'),
        (dict(by_epoch=True, end=30), dict(max_epochs=30), None),
        (dict(by_epoch=False, end=400), dict(max_epochs=30), None),
        (dict(by_epoch=True), dict(max_epochs=30), None),
        (dict(by_epoch=True, end=int(1e9)), dict(max_epochs=30), None),
    ],
)
def test_schedules_longer_than_the_training_are_said(schedule, loop, found):
    cfg = config(param_scheduler=[dict(type='LinearLR', **schedule)], train_cfg=loop)
    remarks = settings.long_schedules(cfg)
    assert (remarks == []) if found is None else (found in remarks[0] and 'param_scheduler.0 (LinearLR)' in remarks[0])


@pytest.mark.parametrize(
    ('launcher', 'batch', 'scaling', 'accumulated', 'said'),
    [
        ('pytorch', 128, dict(base_batch_size=1024), 1, None),
        ('none', 1024, dict(base_batch_size=1024), 1, None),
        ('pytorch', 64, dict(base_batch_size=1024), 2, None),
        ('pytorch', 32, dict(base_batch_size=1024, enable=True), 1, None),
        ('pytorch', 32, dict(), 1, None),
        ('pytorch', 1024, dict(base_batch_size=1024), 1, r'has 8192 images \(1024 in each of 8 proc.*\(times 8\)'),
        ('none', 128, dict(base_batch_size=1024), 1, r'\(128 in each of 1 process\).* 1024 .*\(times 0\.125\)'),
        ('pytorch', 8, dict(base_batch_size=16), 2, r'128 images \(8 in each of 8 processes, accumulated 2 times\)'),
    ],
)
def test_batch_that_the_learning_rate_is_not_for_is_said(monkeypatch, launcher, batch, scaling, accumulated, said):
    monkeypatch.setenv('WORLD_SIZE', '8')
    cfg = config(
        launcher=launcher,
        train_dataloader=dict(batch_size=batch),
        auto_scale_lr=scaling,
        optim_wrapper=dict(accumulative_counts=accumulated),
    )
    remarks = settings.unexpected_batch(cfg)
    assert len(remarks) == (said is not None) and all(re.search(said, one) for one in remarks)


@pytest.mark.parametrize('processes', [8, 64])
def test_processes_share_the_batch_of_the_learning_rate(monkeypatch, processes):
    monkeypatch.setenv('WORLD_SIZE', str(processes))
    cfg = config(launcher='pytorch', train_dataloader=dict(batch_size=128), auto_scale_lr=dict(base_batch_size=1024))
    settings.split_batch(cfg)
    assert cfg.train_dataloader.batch_size == 1024 // processes and settings.unexpected_batch(cfg) == []


def test_launcher_must_have_started_the_process(monkeypatch):
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'):
        monkeypatch.setenv(name, '0')
    environment.check_launcher('none')
    environment.check_launcher('pytorch')
    monkeypatch.delenv('RANK')
    with pytest.raises(ValueError, match=r'--launcher pytorch .* RANK: .*dist_train\.sh'):
        environment.check_launcher('pytorch')
    monkeypatch.setenv('TORCHELASTIC_RUN_ID', 'none')
    monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(ValueError, match=r'torchrun has started 2 processes, .*: add --launcher pytorch'):
        environment.check_launcher('none')


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


def test_data_root_must_be_a_path(tmp_path):
    with pytest.raises(ValueError, match=r'dataset\.data_root = inf: expected a folder'):
        check_files(dict(type='CustomDataset', data_root=float('inf')), 'mmpretrain')


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
        ('', 'is empty'),
        ('{"images": [', 'not valid JSON'),
        ('{}', 'is empty'),
        ('7', 'holds a int'),
        ('\ufeff{}', 'byte order mark'),
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


# --- the order: nothing is written or built before the last check ---


def test_training_checks_pass_on_a_sound_config(tmp_path):
    write(tmp_path / 'data' / 'a.png')
    cfg = config(
        launcher='none',
        work_dir=str(tmp_path / 'work'),
        train_dataloader=loader(tmp_path / 'data'),
        optim_wrapper=dict(type='OptimWrapper'),
    )
    check_training(cfg)
    assert not (tmp_path / 'work').exists()
    cfg.resume = True
    cfg.load_from = str(tmp_path / 'gone.pth')
    with pytest.raises(FileNotFoundError, match='--resume'):
        check_training(cfg)


def test_testing_checks_name_the_checkpoint(tmp_path):
    cfg = config(launcher='none', load_from=str(tmp_path / 'gone.pth'))
    with pytest.raises(FileNotFoundError, match='CHECKPOINT: no such checkpoint'):
        check_testing(cfg)


# --- scopes ---


@pytest.mark.parametrize('scope', [[], -0.5])
def test_default_scope_that_is_no_name(scope):
    with pytest.raises(ValueError, match=r'default_scope = .* is no name of a package: set it to one of mmpretrain'):
        check_scope(ConfigDict(default_scope=scope))
