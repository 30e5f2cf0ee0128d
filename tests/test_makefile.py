"""Set-up of the stacks: what `make` would run, and what it runs with a Python that only writes down its arguments."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from vitplug.stacks import STACKS

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[1]
STEPS = ('venv', 'torch', 'mmcv', 'vitplug', 'checked')


def make(*args, **variables):
    env = {key: value for key, value in os.environ.items() if not key.startswith(('MAKE', 'PIP_'))}
    settings = [f'{key}={value}' for key, value in variables.items()]
    return subprocess.run(['make', *args, *settings], cwd=ROOT, env=env, capture_output=True, text=True)


@pytest.mark.parametrize('stack', STACKS, ids=lambda stack: stack.name)
def test_a_stack_has_its_own_environment_constraints_and_packages(stack):
    done = make('--dry-run', '--always-make', 'test', STACK=stack.name)
    assert done.returncode == 0, done.stderr
    venv = '.venv' if stack.name == 'onedl' else f'.venv-{stack.name}'
    assert f'-m venv --clear {venv}\n' in done.stdout and f'{venv}/bin/python -m pytest' in done.stdout
    pip = [line for line in done.stdout.splitlines() if ' pip install ' in line]
    assert len(pip) == 4 and all(
        f'{venv}/bin/python' in line and f'-c requirements/{stack.name}.txt' in line for line in pip
    )
    torch, cached, uncached, vitplug = pip
    assert ' torch torchvision ' in torch and vitplug.endswith(f"-e '.[{stack.extra},test]'")
    assert all(' --no-build-isolation ' in line and f' {stack.mmcv}' in line for line in (cached, uncached))
    assert ' --find-links' not in done.stdout


@pytest.mark.parametrize('marks', [(), ('integration',), ('sampled',), ('integration', 'sampled')], ids=str)
def test_every_quick_test_is_in_one_of_both_targets(marks):
    done = make('--dry-run', 'test', 'test-integration')
    runs = [shlex.split(line) for line in done.stdout.splitlines() if ' -m pytest ' in line]
    assert len(runs) == 2 and all('--quick' in run for run in runs), done.stdout
    chosen = [Expression.compile(run[-1]).evaluate(lambda name: name in marks) for run in runs]
    assert chosen.count(True) == 1


def test_help_names_targets_alone():
    named = set(re.findall(r'make ([a-z-]+)', make('help').stdout))
    assert {'demo', 'test', 'test-integration', 'docs'} <= named
    for target in named:
        assert make('--dry-run', target).returncode == 0, target


def test_unknown_stacks_are_refused():
    done = make('--dry-run', 'setup', STACK='openmmlab-old')
    assert done.returncode == 2 and 'STACK=openmmlab-old: choose one of onedl openmmlab openmmlab-new' in done.stderr


@pytest.mark.parametrize(('held', 'stack'), [('openmmlab', 'onedl'), ('', 'openmmlab')])
def test_one_environment_is_for_one_stack(tmp_path, held, stack):
    (tmp_path / '.vitplug').mkdir()
    (tmp_path / '.vitplug' / 'venv').write_text(held)
    done = make('--dry-run', 'setup', STACK=stack, VENV=tmp_path)
    assert (
        done.returncode == 2 and f'holds the stack {held or "onedl"}, not {stack}: choose another VENV' in done.stderr
    )
    assert make('--dry-run', 'setup', STACK=held or 'onedl', VENV=tmp_path).returncode == 0


def set_up_mmcv(venv, loads: bool, cache: str = 'echo /cache', **variables):
    """Runs the step of mmcv; returns what make did and the arguments of every pip install."""
    (venv / 'bin').mkdir()
    (venv / '.vitplug').mkdir()
    (venv / '.vitplug' / 'venv').write_text('openmmlab')
    (venv / '.vitplug' / 'torch').touch()
    requirements = ROOT / 'requirements' / 'openmmlab.txt'
    for number, step in enumerate(STEPS[:2]):
        os.utime(venv / '.vitplug' / step, ns=(0, requirements.stat().st_mtime_ns + number + 1))
    python = venv / 'bin' / 'python'
    python.write_text(
        '#!/bin/sh\n'
        'case "$*" in\n'
        f'*"pip install"*) echo "$*" >> {venv}/pips;;\n'
        f'*"pip cache dir"*) {cache};;\n'
        '*version*torch*) echo 2.1.2+cu121;;\n'
        f'*"import mmcv.ops"*) exit {int(not loads)};;\n'
        'esac\n'
    )
    python.chmod(0o755)
    done = make(venv / '.vitplug' / 'mmcv', STACK='openmmlab', VENV=venv, **variables)
    return done, (venv / 'pips').read_text().splitlines()


def test_mmcv_is_cached_for_each_torch(tmp_path):
    done, pips = set_up_mmcv(tmp_path, loads=True)
    assert done.returncode == 0, done.stderr
    assert len(pips) == 1 and pips[0].endswith('--no-build-isolation -v --cache-dir /cache/torch-2.1.2+cu121 mmcv')
    assert (tmp_path / '.vitplug' / 'mmcv').exists()


def test_mmcv_without_a_cache(tmp_path):
    done, pips = set_up_mmcv(tmp_path, loads=True, cache='exit 1')
    assert done.returncode == 0, done.stderr
    assert len(pips) == 1 and pips[0].endswith('requirements/openmmlab.txt --no-build-isolation -v mmcv')


def test_an_mmcv_of_another_torch_is_built_anew(tmp_path):
    done, pips = set_up_mmcv(tmp_path, loads=False)
    assert done.returncode == 0 and len(pips) == 2
    assert 'the cached mmcv does not load with this torch: building it again' in pips[1]
    assert pips[1].endswith('--no-cache-dir --no-deps --force-reinstall mmcv')


@pytest.mark.parametrize('loads', [True, False])
def test_prebuilt_wheels_are_taken_or_refused_but_nothing_is_compiled(tmp_path, loads):
    done, pips = set_up_mmcv(tmp_path, loads, MMCV_WHEELS='file:///wheels/index.html')
    assert len(pips) == 1 and ' --find-links file:///wheels/index.html --only-binary mmcv ' in pips[0]
    assert (done.returncode == 0) == loads == (tmp_path / '.vitplug' / 'mmcv').exists()
    assert loads or 'does not load with this torch: name other wheels' in done.stdout
