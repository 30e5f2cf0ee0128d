"""Checkpoint files: what is read, what is refused with the file's name, and that nothing is run or overwritten."""

import argparse
import json
import os
import pickle
import re
import resource
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch import nn

from vitplug.checkpoints import read_checkpoint, write_new
from vitplug.checkpoints.files import find_weights, local_file

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


@pytest.mark.parametrize('suffix', ['.pth', '.pt', '.safetensors'])
def test_written_and_read(suffix, tmp_path):
    meta = dict(epoch=3, dataset_meta=dict(classes=['a', 'b']), score=np.float64(0.5))
    path = write_new(STATE, tmp_path / f'weights{suffix}', meta)
    content = read_checkpoint(path)
    assert_same(content['state_dict'], STATE)
    assert content['meta'] == meta
    assert os.listdir(tmp_path) == [path.name]


def test_safetensors_of_others(tmp_path):
    from safetensors.torch import save_file

    save_file(STATE, tmp_path / 'timm.safetensors')
    assert_same(read_checkpoint(tmp_path / 'timm.safetensors')['state_dict'], STATE)


def test_file_in_the_format_before_zip(tmp_path):
    torch.save(dict(model=STATE), tmp_path / 'old.pth', _use_new_zipfile_serialization=False)
    assert_same(read_checkpoint(tmp_path / 'old.pth')['model'], STATE)


class TinyModel(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, inputs, mode='tensor'):
        return dict(loss=self.layer(torch.stack(list(inputs))).square().mean())


class TinyData(torch.utils.data.Dataset):
    metainfo = dict(classes=('a', 'b'), palette=np.zeros((2, 3), dtype=np.uint8))

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return dict(inputs=torch.full((2,), float(index)))


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A checkpoint as mmengine's runner writes it, with logs, optimizer, schedule and averaged weights."""
    folder = tmp_path_factory.mktemp('training')
    sampler = dict(type='DefaultSampler', shuffle=False)
    runner = Runner(
        TinyModel(),
        work_dir=str(folder),
        train_dataloader=dict(dataset=TinyData(), batch_size=2, sampler=sampler),
        train_cfg=dict(by_epoch=True, max_epochs=2),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        param_scheduler=dict(type='MultiStepLR', milestones=[1]),
        custom_hooks=[dict(type='EMAHook', momentum=0.1)],
        default_hooks=dict(checkpoint=dict(type='CheckpointHook'), logger=dict(type='LoggerHook', interval=1)),
        experiment_name='tiny',
        log_level='ERROR',
    )
    runner.train()
    return folder / 'epoch_2.pth'


def test_checkpoint_of_a_training(trained):
    """With mmengine's records of what was logged, with which a training goes on."""
    plainly, content = torch.load(trained, weights_only=False), read_checkpoint(trained)
    assert_same(content['state_dict'], plainly['state_dict'])
    assert content['meta'].keys() == plainly['meta'].keys()
    assert (content['meta']['dataset_meta']['palette'] == 0).all()
    records, expected = (one['message_hub']['log_scalars'] for one in (content, plainly))
    assert records.keys() == expected.keys() and 'train/loss' in records
    assert records['train/loss'].mean() == expected['train/loss'].mean()


def test_options_in_files_of_deit(tmp_path):
    torch.save(dict(model=STATE, args=argparse.Namespace(lr=0.1)), tmp_path / 'deit.pth')
    assert_same(read_checkpoint(tmp_path / 'deit.pth')['model'], STATE)


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


def test_address_of_a_file_is_the_file(tmp_path, monkeypatch):
    """Also after it has changed: nothing is kept."""
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'hub'))
    write_new(STATE, tmp_path / 'my weights.pth')
    assert local_file(f'file://{tmp_path}/my%20weights.pth') == tmp_path / 'my weights.pth'
    assert not (tmp_path / 'hub').exists()
    with pytest.raises(ValueError, match=r"checkpoint='s3://bucket/w\.pth': expected a path or an address"):
        local_file('s3://bucket/w.pth')


# --- what is refused ---


def truncated(suffix, size):
    def write(path):
        write_new(STATE, path.with_suffix(suffix))
        return path.with_suffix(suffix).read_bytes()[:size]

    return write


def header(tensor, length=None):
    """A safetensors file of 8 bytes of data with any header."""
    text = json.dumps(dict(a=tensor)).encode()
    return struct.pack('<Q', len(text) if length is None else length) + text + bytes(8)


def saved(content):
    def write(path):
        torch.save(content, path)
        return path.read_bytes()

    return write


TENSOR = dict(dtype='F32', shape=[2], data_offsets=[0, 8])
BAD_FILES = {
    'empty': ('x.pth', b'', r'is empty \(0 bytes\): copy or download it again'),
    'empty safetensors': ('x.safetensors', b'', r'is empty \(0 bytes\)'),
    'text': ('x.pth', b'<html>404</html>', 'truncated or no checkpoint'),
    'zeros': ('x.pth', bytes(4096), 'truncated or no checkpoint'),
    'truncated': ('x.pth', truncated('.pth', 900), 'truncated or no checkpoint .*copy or download it again'),
    'truncated at the end': ('x.pth', truncated('.pth', -40), 'truncated or no checkpoint'),
    'truncated safetensors': ('x.safetensors', truncated('.safetensors', -5), 'truncated or no checkpoint'),
    'no header': ('x.safetensors', b'abc', 'truncated or no checkpoint'),
    'header of a terabyte': ('x.safetensors', header(TENSOR, 10**12), 'truncated or no checkpoint'),
    'header past the end': ('x.safetensors', header(TENSOR, 500), 'truncated or no checkpoint'),
    'header with more data': (
        'x.safetensors',
        header(dict(TENSOR, shape=[2000], data_offsets=[0, 8000])),
        'truncated or no checkpoint',
    ),
    'header with another shape': ('x.safetensors', header(dict(TENSOR, shape=[3])), 'truncated or no checkpoint'),
    'header no JSON': ('x.safetensors', struct.pack('<Q', 8) + b'notjson!' + bytes(8), 'truncated or no checkpoint'),
    'torch in safetensors': ('x.safetensors', truncated('.pth', 10**6), 'truncated or no checkpoint'),
    'list': ('x.pth', saved([torch.zeros(1)]), r"holds a list: expected a state dict, .*'state_dict'"),
}


@pytest.mark.parametrize('case', BAD_FILES)
def test_broken_file(case, tmp_path):
    name, content, message = BAD_FILES[case]
    path = tmp_path / name
    data = content if isinstance(content, bytes) else content(tmp_path / 'other.pth')
    path.write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(str(path)) + '.*' + message):
        read_checkpoint(path)


def test_every_truncation_is_refused(tmp_path):
    for suffix in ('.pth', '.safetensors'):
        whole = write_new(STATE, tmp_path / f'whole{suffix}').read_bytes()
        path = tmp_path / f'part{suffix}'
        for size in {*range(0, len(whole), 61), len(whole) - 1}:
            path.write_bytes(whole[:size])
            with pytest.raises(ValueError, match='part'):
                read_checkpoint(path)


def test_what_is_no_tensor_among_tensors_is_refused_and_extra_state_is_not():
    state = STATE | {'d._extra_state': dict(a=1), 'num_updates': 3}
    assert find_weights(dict(state_dict=state), 'a.pth')[0].keys() == STATE.keys()
    with pytest.raises(
        ValueError, match=r'a\.pth: d\.bias should be tensors, but d\.bias is a list: get an intact copy'
    ):
        find_weights(dict(state_dict=state | {'d.bias': [1.0, 2.0]}), 'a.pth')


def test_no_weights():
    with pytest.raises(ValueError, match=r'optim\.pth holds no weights: its keys are lr, steps, 0; expected tensors'):
        find_weights({'lr': 0.1, 'steps': 3, 0: torch.zeros(1)}, 'optim.pth')


def test_missing_file_names_its_neighbour(tmp_path):
    write_new(STATE, tmp_path / 'swin-tiny.pth')
    with pytest.raises(FileNotFoundError, match=r'swin-tinny\.pth .*did you mean swin-tiny\.pth'):
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


def test_code_is_run_when_asked_for(tmp_path):
    trap = tmp_path / 'trap'
    path = tmp_path / 'mine.pth'
    torch.save(dict(state_dict=STATE, meta=Touch(trap)), path)
    with pytest.raises(
        ValueError, match=r'would run (io|_io|builtins|__builtin__)\.open .*nothing was run.*unsafe_unpickle'
    ):
        read_checkpoint(path)
    assert_same(read_checkpoint(path, unsafe_unpickle=True)['state_dict'], STATE)
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


@pytest.mark.parametrize(
    'tensor, kind',
    [
        (torch.zeros(2, dtype=torch.complex64), 'complex'),
        (torch.eye(2).to_sparse(), 'sparse'),
        (torch.zeros(2, device='meta'), 'meta'),
    ],
)
def test_tensors_that_are_no_weights(tensor, kind):
    with pytest.raises(ValueError, match=rf'x\.pth: a is a {kind}'):
        find_weights(dict(a=tensor), 'x.pth')


# --- what is written ---


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_views_are_written_without_what_they_are_views_of(suffix, tmp_path):
    whole = torch.zeros(1000, 1000)
    path = write_new({'row': whole[3], 'column': whole[:, 3], 'again': whole[3]}, tmp_path / f'x{suffix}')
    assert path.stat().st_size < 50_000


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / 'x.pth'
    path.write_text('precious')
    with pytest.raises(FileExistsError, match=r'x\.pth exists and is not overwritten: choose another name'):
        write_new(STATE, path)
    assert path.read_text() == 'precious' and os.listdir(tmp_path) == ['x.pth']


def test_file_that_appears_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / 'x.pth'
    save = torch.save

    def save_slowly(*args):
        save(*args)
        path.write_text('precious')

    monkeypatch.setattr(torch, 'save', save_slowly)
    with pytest.raises(FileExistsError, match='not overwritten'):
        write_new(STATE, path)
    assert path.read_text() == 'precious' and os.listdir(tmp_path) == ['x.pth']


def test_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match=r'safetensors file cannot hold this meta .*write a \.pth file'):
        write_new(STATE, tmp_path / 'x.safetensors', meta=dict(model=nn.Linear(1, 1)))
    with pytest.raises(ValueError, match=r"unknown suffix '\.npz'; choose from \['\.pth'"):
        write_new(STATE, tmp_path / 'x.npz')
    with pytest.raises(FileNotFoundError, match='there is no folder'):
        write_new(STATE, tmp_path / 'nowhere' / 'x.pth')
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_file_that_does_not_fit_is_named(suffix, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(
            OSError, match=rf'cannot write {tmp_path}/x\{suffix}: .*File too large.*: free disk space'
        ) as error:
            write_new({'a': torch.zeros(1000)}, tmp_path / f'x{suffix}')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert '\n' not in str(error.value) and os.listdir(tmp_path) == []


def test_equal_weights_give_equal_names(tmp_path):
    first = write_new(STATE, tmp_path / 'first.pth', meta={}, add_hash=True)
    second = write_new(STATE, tmp_path / 'second.pth', meta={}, add_hash=True)
    assert re.fullmatch(r'first-[0-9a-f]{8}\.pth', first.name)
    assert first.name.removeprefix('first') == second.name.removeprefix('second')
    with pytest.raises(FileExistsError, match=first.name):
        write_new(STATE, tmp_path / 'first.pth', meta={}, add_hash=True)
