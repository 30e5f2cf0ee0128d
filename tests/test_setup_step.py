"""Steps of the set-up: progress on a terminal and in a log, times, and failures that show why."""

import io
import sys

import pytest

from vitplug import setup_step
from vitplug.progress import StatusLine, spoken


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """A clock that goes on by a step at every look."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.mark.parametrize(
    'seconds, text',
    [
        (0.4, '0 s'),
        (59.4, '59 s'),
        (59.6, '1 min 0 s'),
        (3599.4, '59 min 59 s'),
        (3600, '1 h 0 min'),
        (9000, '2 h 30 min'),
    ],
)
def test_durations(seconds, text):
    assert spoken(seconds) == text


def test_terminal_line_is_written_over(monkeypatch):
    monkeypatch.setenv('COLUMNS', '21')
    out = Terminal()
    line = StatusLine(out)
    for text in ('first', 'a', 'too long for the terminal'):
        line.show(text)
    line.say('result')
    assert out.getvalue() == '\rfirst\ra    \rtoo long for the ter\r' + ' ' * 20 + '\rresult\n'


def test_log_gets_a_line_now_and_then():
    out, clock = io.StringIO(), Clock(10)
    line = StatusLine(out, interval=25, clock=clock)
    for number in range(6):
        line.show(f'state {number}')
    line.say('result')
    assert out.getvalue() == 'state 2\nstate 5\nresult\n'


@pytest.mark.parametrize(
    'line, state',
    [
        ('  [37/120] c++ -MMD -MF nms.o.d -c nms.cpp', 'compiled 37 of 120 files'),
        ('Downloading torch-2.12.1-cp311-cp311-manylinux_2_28_x86_64.whl (880.2 MB)',
         'getting torch-2.12.1-cp311-cp311-manylinux_2_28_x86_64.whl'),
        ('  Downloading https://host.org/a/onedl_mmcv-2.3.6.tar.gz (512 kB)', 'getting onedl_mmcv-2.3.6.tar.gz'),
        ('  Using cached numpy-2.1.0-cp311.whl.metadata (62 kB)', 'getting numpy-2.1.0-cp311.whl'),
        ('Building wheels for collected packages: onedl-mmcv', 'building onedl-mmcv'),
        ('Installing collected packages: mpmath, torch', 'installing'),
        ('copying mmcv/ops/nms.py -> build/lib/mmcv/ops', None),
    ],
)  # fmt: skip
def test_states(line, state):
    assert setup_step.state_of(line) == state


def run(tmp_path, code, **options):
    out = io.StringIO()
    log = tmp_path / 'logs' / 'step.log'
    line = StatusLine(out, interval=0, clock=Clock(1))
    status = setup_step.run_step('[2/5] a step', log, [sys.executable, '-c', code], line, **options)
    return status, out.getvalue(), log


def test_step_that_works(tmp_path):
    code = "import sys; print('[1/2] c++ a.cpp', flush=True); print('[2/2] c++ b.cpp', file=sys.stderr); print('noise')"
    status, out, log = run(tmp_path, code, clock=Clock(100))
    lines = out.splitlines()
    assert status == 0 and lines[0] == '[2/5] a step' and lines[-1].startswith('      done in ')
    assert 'compiled 2 of 2 files, ' in lines[-2] and lines[-2].endswith(' so far')
    assert 'noise' in log.read_text() and 'noise' not in out


def test_step_that_fails_shows_the_end_of_its_output(tmp_path):
    code = "import sys; print(*range(100), sep='\\n', flush=True); print('no compiler', file=sys.stderr); sys.exit(3)"
    status, out, log = run(tmp_path, code)
    assert status == 3
    assert 'no compiler' in out and '\n99\n' in out and '\n7\n' not in out
    assert out.splitlines()[-1] == f'error: [2/5] a step: failed; the full output is in {log}'
    assert '\n7\n' in log.read_text()


def test_command_line(tmp_path, capsys):
    assert setup_step.main(['title', str(tmp_path / 'log')]) == 2
    assert 'usage: ' in capsys.readouterr().err
    assert setup_step.main(['title', str(tmp_path / 'log'), str(tmp_path / 'no-such-program')]) == 1
    assert 'error: title: ' in capsys.readouterr().err
    assert setup_step.main(['title', str(tmp_path / 'log'), sys.executable, '-c', '']) == 0
