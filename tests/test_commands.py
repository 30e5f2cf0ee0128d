"""The command `vitplug`: the functions of the tools by name, and messages that name what there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vitplug import cli
from vitplug.commands import COMMANDS

TOOLS = Path(__file__).resolve().parents[1] / 'tools'


@pytest.fixture
def typed(monkeypatch):
    """Runs `vitplug` with arguments."""

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', ['vitplug', *arguments])
        return cli.main()

    return run


@pytest.mark.parametrize('name', COMMANDS)
def test_usage_says_what_was_typed(name, typed, capsys):
    with pytest.raises(SystemExit) as end:
        typed(name, '--help')
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f'usage: vitplug {name} [-h]') and '%%' not in said


def test_every_tool_is_a_command():
    others = ('demo.py', 'pretrained_demo.py', *(path.name for path in TOOLS.glob('dataset_converters/*.py')))
    tools = [path for path in TOOLS.rglob('*.py') if path.name not in others]
    called = [re.findall(r"run\('([a-z-]+)', sys\.argv", tool.read_text()) for tool in tools]
    assert sorted(called) == sorted([name] for name in COMMANDS if name not in ('diff', 'doctor'))


@pytest.mark.integration
def test_overview_needs_no_torch():
    code = "import sys, vitplug.cli as c; c.main(); print({'torch', 'mmengine', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    *lines, heavy = done.stdout.splitlines()
    assert heavy == 'set()'
    assert [line.split()[0] for line in lines if line.startswith('  ')] == list(COMMANDS)


@pytest.mark.parametrize(
    ('name', 'answer'),
    [('Trian', "'Trian'; did you mean 'train'?"), ('\x1b[2J', '`vitplug --help` lists all commands')],
)
def test_wrong_command_names_the_nearest(name, answer, typed, capsys):
    with pytest.raises(SystemExit, match='2'):
        typed(name)
    told = capsys.readouterr().err
    assert told.startswith('error: there is no command ') and answer in told and '\x1b' not in told


@pytest.mark.parametrize(
    ('users', 'spin_count', 'only_tensors'),
    [({}, '1000', '1'), (dict(OMP_WAIT_POLICY='passive', TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD='1'), None, None)],
)
def test_variables_of_the_user_are_kept(users, spin_count, only_tensors, monkeypatch):
    for name in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY', cli.ONLY_TENSORS, cli.NOT_ONLY_TENSORS):
        monkeypatch.setenv(name, users.get(name, ''))
        if name not in users:
            monkeypatch.delenv(name)
    cli.prepare()
    assert os.environ.get('GOMP_SPINCOUNT') == spin_count and os.environ.get(cli.ONLY_TENSORS) == only_tensors
