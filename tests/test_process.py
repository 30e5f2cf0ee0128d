"""How processes start: known lines of libraries are left out, and OpenMP is told before torch is loaded."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitplug.process import prepare

ROOT = Path(__file__).resolve().parents[1]
TOOLS = sorted(path for path in (ROOT / 'tools').rglob('*.py') if path.parent.name != 'dataset_converters')


@pytest.mark.parametrize(
    ('texts', 'kept'),
    [
        (['Could not import OneDL', '\n', 'mIoU', '\n'], 'mIoU\n'),
        (['creating index...\n', '\n', 'a\n'], '\na\n'),
        (['Done (t=0.07s)', '\n', 'Done (t=0.07s): 3 images', '\n'], 'Done (t=0.07s): 3 images\n'),
        (['index created!', ' twice', '\n'], ' twice\n'),
    ],
)
def test_whole_known_lines_are_left_out(texts, kept, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, 'stdout', stream)
    prepare()
    prepare()  # the second time changes nothing
    for text in texts:
        sys.stdout.write(text)
    assert stream.getvalue() == kept and sys.stdout.isatty() is False


@pytest.mark.parametrize(
    ('users', 'spin_count'),
    [({}, '1000'), (dict(GOMP_SPINCOUNT='30 k'), '30 k'), (dict(OMP_WAIT_POLICY='passive'), None)],
)
def test_variables_of_the_user_are_kept(users, spin_count, monkeypatch):
    for name in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'):
        monkeypatch.delenv(name, raising=False)
    for name, value in users.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, 'stdout', io.StringIO())
    prepare()
    assert os.environ.get('GOMP_SPINCOUNT') == spin_count


FIRST_IMPORT_OF_TORCH = """
import json, os, runpy, sys

class BeforeTorch:
    def find_spec(self, name, path=None, target=None):
        if name == 'torch':
            raise SystemExit

sys.meta_path.insert(0, BeforeTorch())
found = {}
for tool in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition('.')[0] in ('vitplug', 'mmengine')]:
        del sys.modules[name]
    os.environ.pop('GOMP_SPINCOUNT', None)
    sys.argv[:] = [tool, 'config', 'other']
    sys.stdout = sys.stderr = open(os.devnull, 'w')
    try:
        runpy.run_path(tool, run_name='__main__')
    except SystemExit:
        pass
    found[os.path.basename(tool)] = os.environ.get('GOMP_SPINCOUNT')
sys.stdout = sys.__stdout__
print(json.dumps(found))
"""


@pytest.mark.integration
def test_every_tool_prepares_its_process_before_it_loads_torch():
    tools = [*map(str, TOOLS), str(ROOT / 'vitplug' / 'doctor.py')]
    env = {key: value for key, value in os.environ.items() if key not in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')}
    done = subprocess.run(
        [sys.executable, '-c', FIRST_IMPORT_OF_TORCH, *tools], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys((Path(tool).name for tool in tools), '1000')
