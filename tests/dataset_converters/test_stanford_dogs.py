"""The lists of Stanford Dogs: read, checked, written, and read again by mmpretrain."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from vitplug.datasets.stanford_dogs import list_stanford_dogs, split_pool

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'dataset_converters' / 'stanford_dogs.py'
FOLDERS = [f'n{20000 + i:08d}-Breed-{i}' for i in range(120)]
FILES = {
    'train': [(f'{folder}/{i}_{k}.jpg', i + 1) for i, folder in enumerate(FOLDERS) for k in range(3)],
    'test': [(f'{folder}/{i}_9.jpg', i + 1) for i, folder in enumerate(FOLDERS)],
}


def save_list(path, entries):
    names = np.empty((len(entries), 1), dtype=object)
    names[:, 0] = [name for name, _ in entries]
    savemat(path, {'file_list': names, 'labels': np.array([[label] for _, label in entries], dtype=float)})


@pytest.fixture
def root(tmp_path):
    for split, entries in FILES.items():
        save_list(tmp_path / f'{split}_list.mat', entries)
        for name, _ in entries:
            path = tmp_path / 'Images' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b'x')
    return tmp_path


def entries_of(root, name):
    return [line.rsplit(' ', 1) for line in (root / 'meta' / f'{name}.txt').read_text().splitlines()]


def test_own_split_has_labels_from_zero(root):
    counts = list_stanford_dogs(root)
    assert counts == {'train': 360, 'test': 120, 'pooled_train': 336, 'pooled_val': 72, 'pooled_test': 72}
    assert entries_of(root, 'train') == [[name, str(label - 1)] for name, label in FILES['train']]
    assert entries_of(root, 'test') == [[name, str(label - 1)] for name, label in FILES['test']]
    assert (root / 'meta' / 'classes.txt').read_text().splitlines()[7] == 'Breed-7'


def test_pooled_split_has_every_image_once_and_depends_on_the_seed(root):
    list_stanford_dogs(root)
    pooled = [name for part in ('train', 'val', 'test') for name, _ in entries_of(root, f'pooled_{part}')]
    assert sorted(pooled) == sorted(name for entries in FILES.values() for name, _ in entries)
    assert pooled != sorted(pooled)
    assert split_pool(FILES['train'], 0) == split_pool(FILES['train'], 0) != split_pool(FILES['train'], 1)


def test_mmpretrain_reads_the_lists(root):
    from mmpretrain.datasets import CustomDataset

    list_stanford_dogs(root)
    dataset = CustomDataset(data_root=str(root), data_prefix='Images', ann_file='meta/test.txt', pipeline=[])
    assert len(dataset) == 120
    info = dataset.get_data_info(5)
    assert info['gt_label'] == 5 and Path(info['img_path']).is_file()


def break_image(root):
    (root / 'Images' / FILES['train'][1][0]).unlink()


def empty_image(root):
    (root / 'Images' / FILES['test'][2][0]).write_bytes(b'')


def foreign_label(root):
    save_list(root / 'test_list.mat', [(FILES['test'][0][0], 121), *FILES['test'][1:]])


def label_of_another_folder(root):
    save_list(root / 'test_list.mat', [(FILES['test'][0][0], 2), *FILES['test'][1:]])


def truncate_list(root):
    path = root / 'test_list.mat'
    path.write_bytes(path.read_bytes()[:200])


def empty_list(root):
    (root / 'train_list.mat').write_bytes(b'')


def missing_list(root):
    (root / 'train_list.mat').unlink()


BROKEN = {
    break_image: (FileNotFoundError, FILES['train'][1][0]),
    empty_image: (ValueError, FILES['test'][2][0]),
    foreign_label: (ValueError, r'test_list\.mat.*1\.\.120.*121'),
    label_of_another_folder: (ValueError, '121 pairs of folder and label'),
    truncate_list: (ValueError, r'test_list\.mat.*anew'),
    empty_list: (ValueError, r'train_list\.mat.*anew'),
    missing_list: (FileNotFoundError, r'train_list\.mat.*lists\.tar'),
}


@pytest.mark.parametrize('damage', BROKEN, ids=lambda damage: damage.__name__)
def test_damage_is_named_and_nothing_is_written(root, damage):
    damage(root)
    error, message = BROKEN[damage]
    with pytest.raises(error, match=message):
        list_stanford_dogs(root)
    assert not (root / 'meta').exists()


def test_other_lists_are_kept_unless_overwritten(root):
    list_stanford_dogs(root)
    mine = root / 'meta' / 'train.txt'
    mine.write_text('my own list\n')
    with pytest.raises(FileExistsError, match=r'train\.txt.*--overwrite'):
        list_stanford_dogs(root)
    assert mine.read_text() == 'my own list\n'
    list_stanford_dogs(root, overwrite=True)
    assert len(entries_of(root, 'train')) == 360
    list_stanford_dogs(root)


def test_tool_prints_the_counts(root, capsys, monkeypatch):
    monkeypatch.setattr(sys, 'argv', [str(TOOL), str(root)])
    runpy.run_path(str(TOOL), run_name='__main__')
    assert f'{root}/meta/pooled_val.txt: 72 images' in capsys.readouterr().out


def test_tool_ends_in_one_line(tmp_path):
    done = subprocess.run([sys.executable, str(TOOL), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1 and 'no such list' in done.stderr and 'Traceback' not in done.stderr


def test_tool_refuses_a_negative_seed(root):
    done = subprocess.run([sys.executable, str(TOOL), str(root), '--seed', '-1'], capture_output=True, text=True)
    assert done.returncode == 2 and 'seed=-1' in done.stderr
