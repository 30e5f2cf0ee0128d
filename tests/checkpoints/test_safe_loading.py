"""A checkpoint cannot run code in a training, and mmengine's own ones still resume."""

import io
import os
import pickle

import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint as mmengine_checkpoint

from vitplug.checkpoints.safe_loading import load_safely, refuse_pickled_code
from vitplug.errors import CheckpointNotRead


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def loader(monkeypatch):
    """mmengine's way of loading, with ours in it until the test ends."""
    monkeypatch.setattr(
        mmengine_checkpoint.CheckpointLoader, '_schemes', dict(mmengine_checkpoint.CheckpointLoader._schemes)
    )
    refuse_pickled_code()
    return mmengine_checkpoint._load_checkpoint


@pytest.mark.parametrize('write', [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_code_in_a_checkpoint_is_not_run(tmp_path, loader, write):
    write(dict(state_dict={}, extra=Malicious(tmp_path / 'harm')), tmp_path / 'a.pth')
    with pytest.raises(CheckpointNotRead, match=r'a\.pth'):
        loader(str(tmp_path / 'a.pth'))
    assert not (tmp_path / 'harm').exists()


def test_mmengine_alone_would_run_it(tmp_path):
    torch.save(dict(state_dict={}, extra=Malicious(tmp_path / 'harm')), tmp_path / 'a.pth')
    mmengine_checkpoint._load_checkpoint(str(tmp_path / 'a.pth'))
    assert (tmp_path / 'harm').exists()


def test_records_of_mmengine_are_read(tmp_path, loader):
    buffer = HistoryBuffer([1.0, 2.0], [1, 1])
    torch.save(dict(state_dict=dict(w=torch.ones(2)), message_hub=dict(log_scalars=dict(loss=buffer))), tmp_path / 'a')
    read = loader(str(tmp_path / 'a'))
    assert read['message_hub']['log_scalars']['loss'].mean() == 1.5
    assert torch.equal(read['state_dict']['w'], torch.ones(2))


def test_broken_files_are_named(tmp_path):
    buffer = io.BytesIO()
    torch.save(dict(w=torch.ones(1000)), buffer)
    for name, content in (('cut.pth', buffer.getvalue()[:500]), ('empty.pth', b''), ('text.pth', b'hello')):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointNotRead, match=name):
            load_safely(str(tmp_path / name))
    with pytest.raises(CheckpointNotRead, match='nowhere'):
        load_safely(str(tmp_path / 'nowhere.pth'))
