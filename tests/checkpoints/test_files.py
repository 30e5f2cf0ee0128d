"""Checkpoint files: what is read, what is refused with the file's name, and that nothing is run or overwritten."""

import argparse
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint as mmengine_checkpoint
from safetensors.torch import save_file

from vitplug.checkpoints import read_checkpoint, write_new
from vitplug.checkpoints.files import find_weights
from vitplug.checkpoints.safe_loading import refuse_pickled_code

STATE = {'a.weight': torch.arange(6.0).view(2, 3), 'b': torch.tensor(3), 'c': torch.ones(2, dtype=torch.bfloat16)}


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), 'w')


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        assert got[key].dtype == value.dtype and torch.equal(got[key], value)


# --- what is read ---


def test_written_and_read(tmp_path):
    meta = dict(epoch=3, dataset_meta=dict(classes=['a', 'b']), score=np.float64(0.5))
    path = write_new(STATE, tmp_path / 'weights.pth', meta)
    content = read_checkpoint(path)
    assert_same(content['state_dict'], STATE)
    assert content['meta'] == meta
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize('before_zip', [False, True])
def test_what_trainings_write_beside_the_weights(before_zip, tmp_path):
    """mmengine's records of what was logged, with which a training goes on, and the options in DeiT's files."""
    log = dict(loss=HistoryBuffer([1.0, 2.0], [1, 1]))
    palette = dict(palette=np.zeros((2, 3), np.uint8))
    content = dict(model=STATE, args=argparse.Namespace(lr=0.1), message_hub=dict(log_scalars=log), meta=palette)
    torch.save(content, tmp_path / 'x.pth', _use_new_zipfile_serialization=not before_zip)
    read = read_checkpoint(tmp_path / 'x.pth')
    assert_same(read['model'], STATE)
    assert read['message_hub']['log_scalars']['loss'].mean() == 1.5 and read['args'].lr == 0.1


@pytest.mark.parametrize('wrapper', ['_orig_mod', '_checkpoint_wrapped_module', '_fsdp_wrapped_module'])
def test_names_of_wrappers_around_blocks(wrapper):
    state = {f'blocks.0.{wrapper}.a.weight': torch.ones(1), f'{wrapper}.b': torch.zeros(1)}
    assert find_weights(state, 'x.pth')[0].keys() == {'blocks.0.a.weight', 'b'}


def test_averaged_weights_of_timm_come_first():
    content = dict(state_dict={'a': torch.zeros(1)}, state_dict_ema={'a': torch.ones(1)}, arch='deit')
    state, place = find_weights(content, 'file')
    assert place == 'state_dict_ema' and state['a'] == 1
    state, place = find_weights(dict(model=dict(state_dict=STATE)), 'file')
    assert place == 'model.state_dict' and state == STATE


# --- what is refused ---


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_broken_files_are_refused_by_name(suffix, tmp_path):
    path = tmp_path / f'part{suffix}'
    save_file(STATE, path) if suffix == '.safetensors' else torch.save(STATE, path)
    assert_same(read_checkpoint(path), STATE)
    whole = path.read_bytes()
    for content in (b'', b'<html>404</html>', bytes(4096), whole[: len(whole) // 2], whole[:-5]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf'part\{suffix} is truncated or no checkpoint .*remove it, and copy or'):
            read_checkpoint(path)


def test_another_object_than_a_dict_is_refused(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / 'x.pth')
    with pytest.raises(ValueError, match=r"holds a list: expected a state dict, .*'state_dict'"):
        read_checkpoint(tmp_path / 'x.pth')


def test_missing_file_names_its_neighbour(tmp_path):
    write_new(STATE, tmp_path / 'swin-tiny.pth')
    with pytest.raises(FileNotFoundError, match=r'swin-tinny\.pth.*did you mean .swin-tiny\.pth'):
        read_checkpoint(tmp_path / 'swin-tinny.pth')


PICKLES = {
    'torch': lambda content, path: torch.save(content, path),
    'torch before zip': lambda content, path: torch.save(content, path, _use_new_zipfile_serialization=False),
    'pickle 2': lambda content, path: path.write_bytes(pickle.dumps(content, protocol=2)),
    'pickle 4': lambda content, path: path.write_bytes(pickle.dumps(content, protocol=4)),
}


@pytest.mark.parametrize('kind', PICKLES)
def test_code_is_not_run(kind, tmp_path):
    trap = tmp_path / 'trap'
    path = tmp_path / 'evil.pth'
    PICKLES[kind](dict(state_dict=STATE, meta=Touch(trap)), path)
    with pytest.raises(ValueError, match=r'evil\.pth'):
        read_checkpoint(path)
    assert not trap.exists()


@pytest.mark.parametrize('kind', ['torch', 'pickle 4'])
def test_mmengine_runs_no_code_in_a_training(kind, tmp_path, monkeypatch):
    loader = mmengine_checkpoint.CheckpointLoader
    monkeypatch.setattr(loader, '_schemes', dict(loader._schemes))
    refuse_pickled_code()
    trap, path = tmp_path / 'trap', tmp_path / 'evil.pth'
    PICKLES[kind](dict(state_dict=STATE, meta=Touch(trap)), path)
    with pytest.raises(ValueError, match=r'evil\.pth'):
        mmengine_checkpoint._load_checkpoint(str(path))
    assert not trap.exists()


def test_code_is_run_when_asked_for(tmp_path, monkeypatch):
    trap, path = tmp_path / 'trap', tmp_path / 'mine.pth'
    torch.save(dict(state_dict=STATE, meta=Touch(trap)), path)
    with pytest.raises(ValueError, match=r'would run (io|_io|builtins|__builtin__)\.open .*nothing was run') as error:
        read_checkpoint(path)
    [(name, value)] = re.findall(r'set (\w+)=(\d)', str(error.value))
    monkeypatch.setenv(name, value)
    monkeypatch.delenv('TORCH_FORCE_WEIGHTS_ONLY_LOAD', raising=False)
    assert_same(read_checkpoint(path)['state_dict'], STATE)
    assert trap.exists()


def test_pickle_of_detectron2(tmp_path):
    """The advice is run: it writes a file that is read."""
    path = tmp_path / 'vit.pkl'
    path.write_bytes(pickle.dumps(dict(model=dict(a=np.ones(3)), __author__='me'), protocol=4))
    with pytest.raises(ValueError, match=r"vit\.pkl is a pickle of Python's, such as detectron2's files") as error:
        read_checkpoint(path)
    [code] = re.findall(r'python -c "(.*?)" writes', str(error.value))
    subprocess.run([sys.executable, '-c', code], cwd=tmp_path, check=True)
    assert torch.equal(read_checkpoint(tmp_path / 'NEW.pth')['a'], torch.ones(3, dtype=torch.float64))


# --- what is written ---


def test_views_are_written_without_what_they_are_views_of(tmp_path):
    whole = torch.zeros(1000, 1000)
    path = write_new({'row': whole[3], 'column': whole[:, 3], 'again': whole[3]}, tmp_path / 'x.pth')
    assert path.stat().st_size < 50_000


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / 'x.pth'
    path.write_text('precious')
    with pytest.raises(FileExistsError, match=r'x\.pth exists and is not overwritten: choose another name'):
        write_new(STATE, path)
    assert path.read_text() == 'precious' and os.listdir(tmp_path) == ['x.pth']
