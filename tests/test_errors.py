"""What ends in one line and what keeps its traceback."""

import pytest

from vitplug.errors import TrainingStopped, one_line_errors

FROM_A_WORKER = (
    'Caught TrainingStopped in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File x\n'
    'vitplug.errors.TrainingStopped: cannot use a.png\n'
)


@pytest.mark.parametrize(
    ('error', 'line', 'status'),
    [
        (ValueError('first line\n   second line'), 'first line second line', 2),
        (FileNotFoundError(2, 'No such file', 'a\nb'), r"[Errno 2] No such file: 'a\nb'", 2),
        (KeyError('Foo is not in the mmengine::model registry.'), 'Foo is not in the mmengine::model registry.', 2),
        (TypeError('class `A` in a.py: unexpected argument b'), 'class `A` in a.py: unexpected argument b', 2),
        (TrainingStopped('saved'), 'saved', 1),
        (TrainingStopped(FROM_A_WORKER), 'cannot use a.png', 1),
        (ValueError(f'{FROM_A_WORKER}  and b.png\n'), 'cannot use a.png and b.png', 2),
        (KeyboardInterrupt(), 'interrupted', 130),
    ],
)
def test_errors_that_a_user_can_mend_are_one_line(error, line, status, capsys):
    with pytest.raises(SystemExit) as end, one_line_errors():
        raise error
    assert end.value.code == status and capsys.readouterr().err == f'error: {line}\n'


@pytest.mark.parametrize('error', [RuntimeError('x'), KeyError('x')])
def test_others_keep_their_traceback(error):
    with pytest.raises(type(error)), one_line_errors():
        raise error


def test_every_process_speaks_for_itself(capsys, monkeypatch):
    """Its reason may be its own, such as a missing file on its machine."""
    monkeypatch.setenv('RANK', '1')
    monkeypatch.setenv('WORLD_SIZE', '2')
    with pytest.raises(SystemExit), one_line_errors():
        raise ValueError('x')
    assert capsys.readouterr().err == 'error: process 1: x\n'
