"""Checkpoint files: what is read, and what is refused with the file's name; that nothing is run."""

import argparse
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint as mmengine_checkpoint
from safetensors.torch import save_file

from vitplug.checkpoints import read_checkpoint
from vitplug.checkpoints.files import find_weights, local_file
from vitplug.checkpoints.through_mmengine import refuse_pickled_code

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


@pytest.mark.parametrize('before_zip', [False, True])
def test_what_trainings_write_beside_the_weights(before_zip, tmp_path):
    """mmengine's records of what was logged, with which a training goes on, and the options in DeiT's files."""
    log = dict(loss=HistoryBuffer([1.0, 2.0], [1, 1]))
    meta = dict(palette=np.zeros((2, 3), np.uint8), score=np.float64(0.5))
    content = dict(model=STATE, args=argparse.Namespace(lr=0.1), message_hub=dict(log_scalars=log), meta=meta)
    torch.save(content, tmp_path / 'x.pth', _use_new_zipfile_serialization=not before_zip)
    read = read_checkpoint(tmp_path / 'x.pth')
    assert_same(read['model'], STATE)
    assert read['message_hub']['log_scalars']['loss'].mean() == 1.5 and read['args'].lr == 0.1


def test_weights_by_their_places_and_names():
    for wrapper in ('_orig_mod', '_checkpoint_wrapped_module', '_fsdp_wrapped_module'):
        state = {f'blocks.0.{wrapper}.a.weight': torch.ones(1), f'{wrapper}.b': torch.zeros(1)}
        assert find_weights(state, 'x.pth')[0].keys() == {'blocks.0.a.weight', 'b'}
    averaged = dict(state_dict={'a': torch.zeros(1)}, state_dict_ema={'a': torch.ones(1)}, arch='deit')
    state, place = find_weights(averaged, 'file')
    assert place == 'state_dict_ema' and state['a'] == 1
    state, place = find_weights(dict(model=dict(state_dict=STATE)), 'file')
    assert place == 'model.state_dict' and state == STATE
    assert find_weights({'a': torch.ones(1).to(torch.float8_e4m3fn)}, 'file')[0]  # a type that isfinite lacks
    with pytest.raises(ValueError, match='file holds no weights: its keys are epoch'):
        find_weights({'epoch': 3}, 'file')


def test_one_file_name_at_two_addresses_is_two_files(tmp_path, monkeypatch):
    asked = []

    def download(address, file, progress):
        asked.append(address)
        Path(file).write_text(address)

    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path))
    monkeypatch.setattr(torch.hub, 'download_url_to_file', download)
    addresses = ['http://a.org/a/model.pth', 'http://a.org/b/model.pth', 'http://a.org/b/model.pth?v=2']
    assert [local_file(address).read_text() for address in [*addresses, addresses[0]]] == [*addresses, addresses[0]]
    assert asked == addresses


# --- what is refused ---


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_broken_files_are_refused_by_name(suffix, tmp_path):
    path = tmp_path / f'part{suffix}'
    save_file(STATE, path) if suffix == '.safetensors' else torch.save(STATE, path)
    assert_same(read_checkpoint(path), STATE)
    whole = path.read_bytes()
    for content in (b'', b'<html>404</html>', bytes(4096), whole[: len(whole) // 2], whole[:-5]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf'part\{suffix} is truncated or no checkpoint .*copy or download it'):
            read_checkpoint(path)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / 'swin-tiny.pth')
    with pytest.raises(ValueError, match=r'swin-tiny\.pth holds a list: expected a dict of tensors'):
        read_checkpoint(tmp_path / 'swin-tiny.pth')
    with pytest.raises(FileNotFoundError, match=r'swin-tinny\.pth.*did you mean .swin-tiny\.pth'):
        read_checkpoint(tmp_path / 'swin-tinny.pth')


PICKLES = {
    'torch': lambda content, path: torch.save(content, path),
    'torch before zip': lambda content, path: torch.save(content, path, _use_new_zipfile_serialization=False),
    'pickle': lambda content, path: path.write_bytes(pickle.dumps(content, protocol=4)),
}


@pytest.mark.parametrize('kind', PICKLES)
def test_code_is_not_run(kind, tmp_path, monkeypatch):
    """By a reading of its own, and by mmengine's in a training."""
    loader = mmengine_checkpoint.CheckpointLoader
    monkeypatch.setattr(loader, '_schemes', dict(loader._schemes))
    refuse_pickled_code()
    trap, path = tmp_path / 'trap', tmp_path / 'evil.pth'
    PICKLES[kind](dict(state_dict=STATE, meta=Touch(trap)), path)
    for read in (read_checkpoint, mmengine_checkpoint._load_checkpoint):
        with pytest.raises(ValueError, match=r'evil\.pth'):
            read(str(path))
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
