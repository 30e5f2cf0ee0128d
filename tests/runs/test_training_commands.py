"""What ends in one line and what keeps its traceback."""

import errno
import io
import logging
import sys

import pytest

from vitplug.errors.one_line import one_line_errors
from vitplug.errors.stops import BadSample, Interrupted, NotStartedAgain, TrainingStopped
from vitplug.runs.training_commands import keep_parameter_lists_off_the_terminal, statuses_of_stops


def test_expected_errors_end_in_one_line(capsys):
    with pytest.raises(SystemExit) as end, one_line_errors(ValueError):
        raise ValueError('first line\n   second line')
    assert end.value.code == 2
    assert capsys.readouterr().err == 'error: first line second line\n'


def test_other_errors_keep_their_traceback():
    with pytest.raises(KeyError), one_line_errors(ValueError):
        raise KeyError('x')


def test_every_process_speaks_for_itself(capsys, monkeypatch):
    """Its reason may be its own, such as a missing file on its machine."""
    monkeypatch.setenv('RANK', '1')
    monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(SystemExit), one_line_errors(ValueError):
        raise ValueError('x')
    assert capsys.readouterr().err == 'error: process 1: x\n'


def test_closed_terminal_changes_no_status(monkeypatch, silent):
    class Closed(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, 'Input/output error')

    for name in ('stdout', 'stderr'):
        monkeypatch.setattr(sys, name, Closed())
    with pytest.raises(SystemExit) as end, statuses_of_stops(silent):
        raise Interrupted('stopped by SIGHUP')
    assert end.value.code == 75
    print('one more line')


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
def silent():
    """A logger that writes nowhere."""
    logger = logging.Logger('silent')
    logger.addHandler(logging.NullHandler())
    return logger


@pytest.mark.parametrize('stop', [kind for kind in TrainingStopped.__subclasses__() if kind is not NotStartedAgain])
def test_every_stop_has_a_status_of_its_own(stop, silent, capsys):
    with pytest.raises(SystemExit) as end, statuses_of_stops(silent):
        raise stop('the reason')
    assert end.value.code == stop.status
    assert capsys.readouterr().err == 'error: the reason\n'
    assert len({kind.status for kind in TrainingStopped.__subclasses__()} - {0, 1, 2}) == 7


def test_stop_in_a_worker_is_one_line_too(silent, capsys):
    """torch hands on the worker's traceback as the message."""
    text = 'Caught BadSample in DataLoader worker process 0.\nOriginal Traceback:\n  File x\n'
    with pytest.raises(SystemExit), statuses_of_stops(silent):
        raise BadSample(f'{text}vitplug.errors.stops.BadSample: cannot use a.png\n')
    assert capsys.readouterr().err == 'error: cannot use a.png\n'
