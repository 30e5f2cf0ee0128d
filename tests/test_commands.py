"""The command `vitplug`: the functions of the tools by name, and messages that name what there is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitplug import cli, commands
from vitplug.commands import COMMANDS, STARTED_AS, call

ROOT = Path(__file__).resolve().parents[1]
TOOLS = {path.relative_to(ROOT / 'tools').as_posix(): path for path in (ROOT / 'tools').rglob('*.py')}
# Those of a checkout: they write its own files, or make data.
OF_THE_CHECKOUT = {'demo.py'}


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """Undoes what a command changes in its process."""
    monkeypatch.setattr(sys, 'argv', list(sys.argv))
    monkeypatch.setenv(STARTED_AS, 'vitplug')
    monkeypatch.delenv(STARTED_AS)
    monkeypatch.setenv('COLUMNS', '120')


@pytest.mark.parametrize('name', COMMANDS)
def test_usage_says_what_was_typed(name, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([name, '--help'])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f'usage: vitplug {name} [-h]') and '%%' not in said


def test_every_tool_is_a_command():
    for name in TOOLS.keys() - OF_THE_CHECKOUT:
        if not name.startswith('dataset_converters/'):
            [command] = [key for key, command in COMMANDS.items() if command.tool == name]
            assert f'run({command!r}, ' in TOOLS[name].read_text()


@pytest.mark.integration
def test_overview_needs_no_torch():
    code = "import sys, vitplug.cli as c; c.main(['--help']); print({'torch', 'mmengine', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    *lines, heavy = done.stdout.splitlines()
    assert heavy == 'set()'
    assert [line.split()[0] for line in lines if line.startswith('  ')] == list(COMMANDS)


@pytest.mark.parametrize(
    ('typed', 'answer'),
    [
        ('trian', "there is no command 'trian'; did you mean 'train'?"),
        ('Train', "did you mean 'train'?"),
        ('\x1b[2J', r"there is no command '\x1b[2J'; `vitplug --help` lists all commands"),
    ],
)
def test_wrong_command_names_the_nearest(typed, answer, capsys):
    assert cli.main([typed]) == 2
    told = capsys.readouterr().err
    assert told.startswith('vitplug: error: ') and answer in told and '\x1b' not in told


@pytest.mark.integration
def test_program_and_its_messages_say_the_same(tmp_path):
    """In a process, as a user calls it; also a status other than 0."""
    (tmp_path / 'a.py').write_text('')
    done = subprocess.run(
        [sys.executable, '-m', 'vitplug', 'train', 'a.py', '--launcher', 'pytorch', '--epochs', '3'],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith('usage: python -m vitplug train ')
    assert 'python -m vitplug train: error: unrecognized arguments: --epochs 3' in done.stderr


def test_messages_name_what_there_is(monkeypatch, tmp_path):
    assert call('check', ['my data.py']) == "python tools/misc/check_dataset.py 'my data.py'"
    assert call('doctor') == 'vitplug doctor'
    monkeypatch.setenv(STARTED_AS, 'python -m vitplug')
    assert call('check') == 'python -m vitplug check'
    monkeypatch.delenv(STARTED_AS)
    monkeypatch.setattr(commands, 'PACKAGE', tmp_path / 'vitplug')
    assert call('check') == 'vitplug check'


@pytest.mark.integration
@pytest.mark.parametrize(
    'imports', ['import vitplug\nfrom mmengine import Config', 'from mmengine import Config\nimport vitplug']
)
def test_mmengine_reads_bases_of_vitplug(imports, tmp_path):
    """Without vitplug's tools; the parts of the base are found as those of a file."""
    (tmp_path / 'a.py').write_text("_base_ = 'vitplug::digits/vit-mini-p4-cb_1xb32-14e_digits-32x32.py'\n")
    code = (
        f'{imports}\n'
        'import json\n'
        'from mmengine.registry import MODELS, init_default_scope\n'
        "cfg = Config.fromfile('a.py')\n"
        'init_default_scope(cfg.default_scope)\n'
        'model = MODELS.build(cfg.model)\n'
        'print(json.dumps([type(model).__name__, str(model.backbone.plug_summary)]))\n'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert done.returncode == 0, done.stderr
    kind, plugs = json.loads(done.stdout.splitlines()[-1])
    assert kind == 'ImageClassifier' and 'ContextBroadcast' in plugs
