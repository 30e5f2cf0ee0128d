"""What ends in one line and what keeps its traceback."""

import logging
from types import SimpleNamespace

import pytest
from torch import nn

from vitplug.errors.one_line import one_line_errors
from vitplug.errors.stops import BadSample, Interrupted
from vitplug.runs.training_commands import ends_in_one_line, keep_parameter_lists_off_the_terminal


def test_expected_errors_end_in_one_line(capsys):
    with pytest.raises(SystemExit) as end, one_line_errors(ValueError):
        raise ValueError('first line\n   second line')
    assert end.value.code == 2
    assert capsys.readouterr().err == 'error: first line second line\n'


def test_every_process_speaks_for_itself(capsys, monkeypatch):
    """Its reason may be its own, such as a missing file on its machine."""
    monkeypatch.setenv('RANK', '1')
    monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(SystemExit), one_line_errors(ValueError):
        raise ValueError('x')
    assert capsys.readouterr().err == 'error: process 1: x\n'


def test_parameter_lists_go_to_the_file_only(tmp_path, capsys):
    logger = logging.Logger('test')
    logger.addHandler(logging.StreamHandler())
    logger.addHandler(logging.FileHandler(tmp_path / 'log'))
    keep_parameter_lists_off_the_terminal(logger)
    logger.info('paramwise_options -- a:lr=1')
    logger.info('loss: 1')
    assert capsys.readouterr().err == 'loss: 1\n'
    assert 'paramwise_options' in (tmp_path / 'log').read_text()


@pytest.fixture
def runner():
    """A runner that notes its hooks."""
    hooks = []
    return SimpleNamespace(hooks=hooks, register_hook=hooks.append, model=nn.Linear(1, 1), cfg={})


@pytest.mark.parametrize('stop', [BadSample, Interrupted])
def test_a_stop_is_one_line(runner, stop, capsys):
    with pytest.raises(SystemExit) as end, ends_in_one_line(runner):
        raise stop('the reason')
    assert end.value.code == stop.status and capsys.readouterr().err == 'error: the reason\n'


def test_stop_in_a_worker_is_one_line_too(runner, capsys):
    """torch hands on the worker's traceback as the message."""
    text = 'Caught BadSample in DataLoader worker process 0.\nOriginal Traceback:\n  File x\n'
    with pytest.raises(SystemExit), ends_in_one_line(runner):
        raise BadSample(f'{text}vitplug.errors.stops.BadSample: cannot use a.png\n')
    assert capsys.readouterr().err == 'error: cannot use a.png\n'


def test_errors_behind_the_first_batch_keep_their_traceback(runner):
    with pytest.raises(SystemExit), ends_in_one_line(runner):
        raise ValueError('early')
    with pytest.raises(ValueError, match='late'), ends_in_one_line(runner):
        runner.hooks[-1].after_train_iter(runner, 0)
        raise ValueError('late')
