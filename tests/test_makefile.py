"""What `make` would run, and what its set-up runs with a Python that only writes down its arguments."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[1]


def make(*args, **variables):
    env = {key: value for key, value in os.environ.items() if not key.startswith(('MAKE', 'PIP_'))}
    settings = [f'{key}={value}' for key, value in variables.items()]
    return subprocess.run(['make', *args, *settings], cwd=ROOT, env=env, capture_output=True, text=True)


@pytest.mark.parametrize('marks', [(), ('integration',)], ids=str)
def test_every_quick_test_is_in_one_of_both_targets(marks):
    done = make('--dry-run', 'test', 'test-integration')
    runs = [shlex.split(line) for line in done.stdout.splitlines() if ' -m pytest ' in line]
    assert len(runs) == 2 and all('--quick' in run for run in runs), done.stdout
    chosen = [Expression.compile(run[-1]).evaluate(lambda name: name in marks) for run in runs]
    assert chosen.count(True) == 1


def set_up(venv, target='setup', **variables):
    """Sets up an environment that has a virtual environment alone; returns the arguments of every pip install."""
    python, stamp = venv / 'bin' / 'python', venv / '.vitplug' / 'venv'
    python.parent.mkdir(exist_ok=True)
    python.write_text(
        '#!/bin/sh\n'
        'case "$*" in\n'
        f'*"pip install"*) echo "$*" >> {venv}/pips;;\n'
        '*"pip cache dir"*) echo /cache;;\n'
        '*version*torch*) echo 2.12.1+cu130;;\n'
        'esac\n'
    )
    python.chmod(0o755)
    if not stamp.exists():
        stamp.parent.mkdir()
        stamp.touch()
    (venv / 'pips').write_text('')
    done = make(target, VENV=venv, **variables)
    assert done.returncode == 0, done.stderr
    return [line.partition('requirements/tested.txt ')[2] for line in (venv / 'pips').read_text().splitlines()]


WITHOUT_OPS = '--no-deps --no-cache-dir onedl-mmcv'
COMPILED = '--no-build-isolation --no-deps --force-reinstall -v --cache-dir /cache/torch-2.12.1+cu130 onedl-mmcv'


def test_set_up_compiles_nothing_unless_it_is_asked_to(tmp_path):
    assert set_up(tmp_path) == ['torch torchvision', WITHOUT_OPS, '-e .']
    assert set_up(tmp_path) == []
    tools, ops = set_up(tmp_path, OPS='compiled', CXX='true')
    assert 'ninja' in tools and ops == COMPILED
    # It has compiled ops now.
    assert set_up(tmp_path) == []


def test_a_missing_compiler_is_said_before_the_build(tmp_path):
    with pytest.raises(AssertionError):
        set_up(tmp_path, OPS='compiled', CXX='no-such-compiler')
    assert COMPILED not in (tmp_path / 'pips').read_text()
