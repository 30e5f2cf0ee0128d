"""A training goes on with the data that it began with, wherever they lie, and is refused with others.

So it is with the normalisation of images, which a test compares as well.
"""

import json
import logging
import os
import shutil

import pytest
import torch
from bad_inputs import CLASSIFIER, run
from mmengine.config import Config

from vitplug.runs.saving.data_note import NOTE, compare_data, note_data

pytestmark = pytest.mark.integration

MORE = '--cfg-options train_cfg.max_epochs=2'
RESUME = f'train.py tiny.py --resume good.pth {MORE}'


CHANGES = {
    'an image more': (
        lambda data: shutil.copy(data / 'train/cat/0.png', data / 'train/cat/00.png'),
        'has 5 files, and had 4',
    ),
    'an image less': (lambda data: os.remove(data / 'train/dog/1.png'), 'has 3 files, and had 4'),
    'another name': (
        lambda data: os.rename(data / 'train/dog/1.png', data / 'train/dog/7.png'),
        'has 4 files as before, but not of the same names',
    ),
    'another class': (
        lambda data: os.rename(data / 'train/dog/1.png', data / 'train/cat/7.png'),
        'has 4 files as before, but not of the same names',
    ),
}


@pytest.mark.parametrize('case', CHANGES)
def test_other_images_are_refused_and_named(folder, case):
    change, said = CHANGES[case]
    change(folder / 'data')
    outcome = run(RESUME, folder)
    place = f'train_dataloader.dataset.data_prefix.img_path ({folder}/data/train) {said}'
    assert outcome.status == 66 and f'good.pth was trained with other data: {place}: ' in outcome.err, outcome.text
    allowed = run(RESUME.replace(' --cfg', ' --allow-changes --cfg'), folder)
    assert allowed.status == 0 and place in allowed.text, allowed.text[-2000:]
    # What the training went on with is what its checkpoints are compared with.
    assert run(RESUME.replace('good.pth', '').replace('epochs=2', 'epochs=3'), folder).status == 0


NO_CHANGES = {
    'a mended image': lambda data: shutil.copy(data / 'train/cat/0.png', data / 'train/dog/1.png'),
    'images of the validation': lambda data: os.remove(data / 'val/cat/0.png'),
    'what is no image': lambda data: [(data / f'train/cat/{name}').write_text('x') for name in ('a.txt', '._0.png')],
    'moved': lambda data: (shutil.move(data, data.parent / 'moved'), data.symlink_to('moved')),
    'linked files': lambda data: (
        shutil.move(data / 'train/cat', data.parent / 'cats'),
        (data / 'train/cat').symlink_to(data.parent / 'cats'),
    ),
}


@pytest.mark.parametrize('case', NO_CHANGES)
def test_what_changes_no_order_is_no_reason(folder, case):
    NO_CHANGES[case](folder / 'data')
    outcome = run(RESUME, folder)
    assert outcome.status == 0 and 'other data' not in outcome.text, outcome.text[-2000:]


def test_data_may_move(folder):
    shutil.move(folder / 'data', folder / 'elsewhere')
    moved = ' '.join(f'{split}_dataloader.dataset.data_root=elsewhere' for split in ('train', 'val', 'test'))
    outcome = run(f'{RESUME} {moved}', folder)
    assert outcome.status == 0 and 'other data' not in outcome.text, outcome.text[-2000:]


def test_a_checkpoint_without_a_note_goes_on(folder):
    content = torch.load(folder / 'good.pth', weights_only=False)
    del content['meta'][NOTE]
    torch.save(content, folder / 'good.pth')
    os.remove(folder / 'data/train/dog/1.png')
    assert run(RESUME, folder).status == 0


@pytest.mark.parametrize(
    'note', [None, [], 'text', {'train_dataloader.dataset': 3}, {'train_dataloader.dataset': {'img_path': None}},
             {'train_dataloader.dataset': {'img_path': {'files': '\x1b' * 10**6}}}, {3: {4: 5}}],
    ids=['none', 'list', 'text', 'number', 'no place', 'long', 'numbers'],
)  # fmt: skip
def test_a_note_of_anybody_ends_in_a_line(folder, note):
    content = torch.load(folder / 'good.pth', weights_only=False)
    content['meta'][NOTE] = note
    torch.save(content, folder / 'good.pth')
    outcome = run(RESUME, folder)
    assert outcome.status in (0, 66) and 'Traceback' not in outcome.text
    assert len(outcome.err) < 1000 and outcome.err.rstrip('\n').isprintable()


# --- normalisation ---


OWN = "    data_preprocessor=dict(type='ClsDataPreprocessor', num_classes=2, mean=[127.5] * 3, std=[64.0] * 3),\n"


@pytest.fixture
def outermost(folder):
    """A training whose data_preprocessor stands beside the model, as in mmpretrain's own configs."""
    assert OWN in CLASSIFIER
    text = 'data_preprocessor = dict(num_classes=2, mean=[127.5] * 3, std=[64.0] * 3, to_rgb=False)\n'
    (folder / 'outer.py').write_text(CLASSIFIER.replace(OWN, '') + text)
    assert run('train.py outer.py --work-dir trained', folder).status == 0
    return folder


@pytest.mark.parametrize('command', ['train.py outer.py --resume', 'test.py outer.py'])
def test_another_normalisation_is_refused_and_named(outermost, command):
    base = f'{command} trained/epoch_1.pth --work-dir new --cfg-options train_cfg.max_epochs=2'
    assert run(base, outermost).status == 0
    shutil.rmtree(outermost / 'new')
    for option, said in {
        'mean=[0.,0.,0.]': 'mean.0 was 127.5, is 0.0',
        'to_rgb=True': 'to_rgb was False, is True',
    }.items():
        outcome = run(f'{base} data_preprocessor.{option}', outermost)
        assert outcome.status == 66 and f'data_preprocessor.{said}' in outcome.err, outcome.text[-2000:]
        allowed = run(f'{base} data_preprocessor.{option}'.replace(' --cfg', ' --allow-changes --cfg'), outermost)
        assert allowed.status == 0 and f'data_preprocessor.{said}' in allowed.text
        shutil.rmtree(outermost / 'new')


# --- notes ---


def noted(dataset, scope='mmpretrain'):
    from vitplug.tasks import check_scope

    cfg = Config(dict(default_scope=scope, train_dataloader=dict(dataset=dataset)))
    check_scope(cfg)
    return cfg, note_data(cfg, logging.getLogger('test_resumed_data'))


def test_annotations_count_by_their_content_and_images_beside_them_do_not(folder, monkeypatch):
    monkeypatch.chdir(folder)
    dataset = dict(type='CocoDataset', data_root='coco', ann_file='train.json', data_prefix=dict(img='train'))
    _, before = noted(dataset, 'mmdet')
    shutil.copy(folder / 'coco/train/0.png', folder / 'coco/train/unlisted.png')
    cfg, now = noted(dataset, 'mmdet')
    assert now == before and list(now['train_dataloader.dataset']) == ['ann_file']
    content = json.loads((folder / 'coco/train.json').read_text())
    (folder / 'coco/train.json').write_text(json.dumps(dict(content, annotations=content['annotations'][:1])))
    (change,) = compare_data(before, noted(dataset, 'mmdet')[1], cfg)
    assert change == f'train_dataloader.dataset.ann_file ({folder}/coco/train.json) has another content'


def test_every_data_set_in_a_wrapper_is_compared(folder, monkeypatch):
    monkeypatch.chdir(folder)
    inner = [dict(type='CustomDataset', data_root='data', data_prefix=split) for split in ('train', 'val')]
    dataset = dict(type='ConcatDataset', datasets=[inner[0], dict(type='RepeatDataset', times=2, dataset=inner[1])])
    _, before = noted(dataset)
    os.remove(folder / 'data/val/cat/0.png')
    cfg, now = noted(dataset)
    (change,) = compare_data(before, now, cfg)
    assert change.startswith('train_dataloader.dataset.datasets.1.dataset.data_prefix.img_path ')


def test_folders_with_label_maps(folder, monkeypatch):
    monkeypatch.chdir(folder)
    dataset = dict(type='BaseSegDataset', data_root='ade', img_suffix='.png',
                   data_prefix=dict(img_path='images', seg_map_path='maps'))  # fmt: skip
    _, before = noted(dataset, 'mmseg')
    os.remove(folder / 'ade/maps/1.png')
    cfg, now = noted(dataset, 'mmseg')
    assert [change.split()[0].rpartition('.')[2] for change in compare_data(before, now, cfg)] == ['seg_map_path']


def test_data_sets_without_files_have_no_note():
    assert noted(dict(type='ConcatDataset', datasets=[dict(type='Made')]))[1] == {}


def test_what_cannot_be_read_is_said(folder, monkeypatch, caplog):
    monkeypatch.chdir(folder)
    _, note = noted(dict(type='CustomDataset', data_root='nowhere'))
    assert note == {} and 'data_prefix.img_path' in caplog.text and 'nowhere' in caplog.text
