"""The classes that a config names are those of the files, in the order in which the libraries count them."""

import pickle

import pytest
from mmdet.datasets import CocoDataset, CocoPanopticDataset, LVISV1Dataset
from mmpretrain.datasets import CIFAR10, CustomDataset, ImageNet

from vitplug.tasks.classes import (
    Classes,
    check_categories,
    class_folders,
    counts_categories,
    match_folders,
    named_classes,
    other_classes,
)

PATH = 'train_dataloader.dataset'


def named(*names):
    return Classes(names, f'{PATH}.metainfo.classes', things=len(names))


def coco(*names):
    return dict(images=[], annotations=[], categories=[dict(id=i, name=name) for i, name in enumerate(names, 3)])


# --- what a config says ---


@pytest.mark.parametrize(
    ('settings', 'kind', 'names', 'source'),
    [
        (dict(metainfo=dict(classes=('cat', 'dog'))), CocoDataset, ('cat', 'dog'), f'{PATH}.metainfo.classes'),
        (dict(classes=['cat']), CustomDataset, ('cat',), f'{PATH}.classes'),
        (dict(), CIFAR10, CIFAR10.METAINFO['classes'], 'CIFAR10 has its own'),
        (dict(metainfo=dict(palette=[])), CocoDataset, CocoDataset.METAINFO['classes'], 'CocoDataset has its own'),
    ],
)
def test_names_are_those_that_the_library_takes(settings, kind, names, source):
    classes = named_classes(settings, kind, PATH)
    assert classes.names == tuple(names) and classes.source.startswith(source)
    assert classes.given == (source.startswith(PATH)) and classes.things == len(names)


def test_names_may_be_unknown_or_in_a_file(tmp_path):
    assert named_classes(dict(), CustomDataset, PATH) is None
    (tmp_path / 'names.txt').write_text('cat\ndog\n')
    metainfo = dict(classes=str(tmp_path / 'names.txt'))
    assert named_classes(dict(metainfo=metainfo), CustomDataset, PATH).names == ('cat', 'dog')


def test_things_of_a_panoptic_data_set_are_told_apart():
    classes = named_classes(dict(), CocoPanopticDataset, PATH)
    assert (len(classes), classes.things) == (133, 80)


@pytest.mark.parametrize(
    ('value', 'message'),
    [
        ('cat', r"metainfo\.classes = 'cat': expected a list of names.*\('cat',\)"),
        ([], r'expected a list of names'),
        (3, r'metainfo\.classes = 3: expected a list'),
        (('cat', 'dog', 'cat'), r"'cat' occur more than once"),
    ],
)
def test_wrong_names_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        named_classes(dict(metainfo=dict(classes=value)), CocoDataset, PATH)


def test_a_file_of_names_that_is_no_text_is_named(tmp_path):
    (tmp_path / 'names.pkl').write_bytes(pickle.dumps(['cat']))
    with pytest.raises(ValueError, match=r"metainfo\.classes = '.*names\.pkl': the file is no text in UTF-8"):
        named_classes(dict(metainfo=dict(classes=str(tmp_path / 'names.pkl'))), CocoDataset, PATH)


# --- COCO files ---


def test_labels_of_coco_files_are_found_by_name_where_mmdet_does_so():
    assert counts_categories(CocoDataset) and counts_categories(CocoPanopticDataset)
    assert not counts_categories(LVISV1Dataset) and not counts_categories(CustomDataset) and not counts_categories(None)


def test_categories_that_are_left_out_are_said():
    assert check_categories(named('cat', 'dog'), coco('cat', 'dog'), 'a.json', PATH) == ''
    remark = check_categories(named('cat', 'eel'), coco('cat', 'dog', 'eel', 'fox'), 'a.json', PATH)
    assert "a.json: categories 'dog', 'fox'" in remark and 'left out' in remark


@pytest.mark.parametrize(
    ('classes', 'content', 'message'),
    [
        (named('cat', 'dgo'), coco('cat', 'dog'), r"'dgo' not among the categories of a\.json: did you mean 'dog'"),
        (
            named('katze'),
            coco('cat', 'dog'),
            rf"categories 'cat', 'dog', and 1 of .*set {PATH}\.metainfo = dict\(classes=\('cat', 'dog'\)\)",
        ),
        (
            Classes(('cat', 'person'), 'CocoDataset has its own', given=False),
            coco('cat'),
            rf"1 of the 2 classes.*set {PATH}\.metainfo = dict\(classes=\('cat',\)\)",
        ),
        (named('dog', 'cat'), coco('cat', 'dog'), r"another order.*dict\(classes=\('cat', 'dog'\)\)"),
        (named('cat'), [1, 2], r'a\.json holds a list: expected a dict'),
        (named('cat'), dict(categories=[7]), r'1 of the 1 classes'),
    ],
)
def test_categories_that_do_not_fit_are_refused(classes, content, message):
    with pytest.raises(ValueError, match=message):
        check_categories(classes, content, 'a.json', PATH)


def test_a_long_list_of_names_is_cut():
    names = [f'class{number}' for number in range(200)]
    with pytest.raises(ValueError, match=r"'class11', \.\.\. \(200 in all\)") as error:
        check_categories(named('cat'), coco(*names), 'a.json', PATH)
    assert 'class12' not in str(error.value)


# --- folders ---


@pytest.fixture
def folder(tmp_path):
    for name in ('dog', 'cat'):
        (tmp_path / name).mkdir()
    (tmp_path / 'notes.txt').write_text('')
    return tmp_path


def test_folders_count_in_alphabetical_order(folder):
    """As mmpretrain itself counts them."""
    for name in ('dog', 'cat'):
        (folder / name / 'a.png').write_bytes(b'')
    folders = class_folders(dict(), CustomDataset, folder)
    assert folders == CustomDataset(data_prefix=str(folder)).metainfo['classes'] == ('cat', 'dog')
    assert match_folders(None, folders, folder, PATH).names == ('cat', 'dog')
    assert match_folders(named('Katze', 'Hund'), folders, folder, PATH).labels == ('cat', 'dog')


@pytest.mark.parametrize(
    ('settings', 'kind'),
    [
        (dict(ann_file='list.txt'), CustomDataset),
        (dict(with_label=False), CustomDataset),
        (dict(split='train'), ImageNet),
        (dict(), CocoDataset),
    ],
)
def test_folders_count_nothing_where_a_list_or_the_class_does(settings, kind, folder):
    assert class_folders(settings, kind, folder) == ()


@pytest.mark.parametrize(
    ('names', 'message'),
    [
        (('cat', 'dog', 'eel'), r"2 folders for 3 classes .*no folder for 'eel': set .*classes=\('cat', 'dog'\)"),
        (('cat',), r"no class for 'dog'"),
        (('dog', 'cat'), r"in alphabetical order: set .*classes=\('cat', 'dog'\)"),
    ],
)
def test_folders_that_do_not_fit_are_refused(names, message, folder):
    with pytest.raises(ValueError, match=message):
        match_folders(named(*names), class_folders(dict(), CustomDataset, folder), folder, PATH)


# --- two data sets ---


def test_labels_mean_the_same_in_every_data_set():
    val = 'val_dataloader.dataset'
    assert list(other_classes({PATH: named('cat', 'dog'), val: named('cat', 'dog')})) == []
    [(place, reason)] = other_classes({PATH: named('cat', 'dog'), val: named('cat', 'eel')})
    assert place == val and reason == f"label 1 is 'eel' here and 'dog' in {PATH}"
    [(_, reason)] = other_classes({PATH: named('cat', 'dog'), val: named('cat')})
    assert reason.startswith('1 classes')
    # Folders count, whatever names they are given.
    first, second = (Classes(('a', 'b'), 'x', labels=labels) for labels in (('cat', 'dog'), ('dog', 'eel')))
    [(_, reason)] = other_classes({PATH: first, val: second})
    assert "'dog' here and 'cat'" in reason
