"""The wheel carries configs, tools and the index of models, and mmengine finds them there by `vitplug::` name."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ('setup.py', 'pyproject.toml', 'MANIFEST.in', 'README.md', 'LICENSE', 'model-index.yml')
FOLDERS = ('vitplug', 'configs', 'tools', 'requirements')
NAME = 'vitplug::refiner/convstem-vit-s-p16-refiner_8xb32-300e_in1k.py'


@pytest.fixture(scope='module')
def source(tmp_path_factory):
    """A copy of what a source distribution holds: a build leaves its traces there."""
    folder = tmp_path_factory.mktemp('source')
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns('__pycache__', '.mim'))
    return folder


@pytest.fixture(scope='module')
def wheel(source, tmp_path_factory):
    """The unpacked wheel. An earlier build has left a config that is gone since."""
    stale = source / 'build' / 'lib' / 'vitplug' / '.mim' / 'configs' / 'gone.py'
    stale.parent.mkdir(parents=True)
    stale.touch()
    out = tmp_path_factory.mktemp('wheel')
    pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--no-build-isolation', '--disable-pip-version-check']
    done = subprocess.run([*pip, '-w', out, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = out.glob('vitplug-*.whl')
    with zipfile.ZipFile(file) as archive:
        archive.extractall(out / 'site-packages')
    return out / 'site-packages'


def files_in(folder: Path) -> set[str]:
    files = (path for path in folder.rglob('*') if path.is_file() and '__pycache__' not in path.parts)
    return {str(path.relative_to(folder)) for path in files}


@pytest.mark.parametrize('folder', ['configs', 'tools'])
def test_wheel_has_every_file_of(folder, wheel):
    assert files_in(wheel / 'vitplug' / '.mim' / folder) == files_in(ROOT / folder)


def test_wheel_has_the_index_the_command_and_nothing_beside_the_package(wheel):
    [entries] = wheel.glob('vitplug-*.dist-info/entry_points.txt')
    assert 'vitplug = vitplug.cli:main' in entries.read_text()
    of_package = ('py.typed', *(f'lab/microscope/page.{ending}' for ending in ('html', 'css', 'js')))
    assert all((wheel / 'vitplug' / name).is_file() for name in of_package)
    index = wheel / 'vitplug' / '.mim' / 'model-index.yml'
    assert index.read_text() == (ROOT / 'model-index.yml').read_text()
    assert {path.name.partition('-')[0] for path in wheel.iterdir()} == {'vitplug', 'vitplug.pth'}


def printed(code: str, path: str, cwd: Path, *options: str) -> dict:
    """What a program prints as JSON, with folders that come before the working tree."""
    env = {**os.environ, 'PYTHONPATH': path}
    command = [sys.executable, *options, '-c', code]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_programs_of_others_find_configs_by_name(wheel, tmp_path):
    """Their own scripts import mmseg and mmengine alone; Python runs the `.pth` file of an installed package."""
    (tmp_path / 'theirs.py').write_text("_base_ = 'mmseg::vit/vit_vit-b16_mln_upernet_8xb2-80k_ade20k-512x512.py'")
    (tmp_path / 'mine.py').write_text(f"_base_ = '{NAME}'\nmodel = dict(backbone=dict(drop_path_rate=0.3))\n")
    code = (
        f'{(wheel / "vitplug.pth").read_text()}'
        'import json, mmseg\n'
        'from mmengine.config import Config\n'
        'from mmengine.hub import get_config\n'
        "theirs, mine = (Config.fromfile(name).model.backbone for name in ('theirs.py', 'mine.py'))\n"
        'import vitplug.registry\n'
        f'print(json.dumps([get_config({NAME!r}).filename, theirs.type, mine.plugs[0].share, mine.drop_path_rate]))\n'
    )
    file, *found = printed(code, str(wheel), tmp_path)
    assert file.startswith(str(wheel / 'vitplug' / '.mim')) and found == ['VisionTransformer', 1, 0.3]


# A start of Python with such a site-packages, which finds no compiled ops and imports mmdet first.
MMDET_FIRST = """
import json, site, sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *args: None if name == 'mmcv._ext' else find(name, *args)
before = set(sys.modules)
site.addsitedir(SITE)
new = {name.partition('.')[0] for name in set(sys.modules) - before}
from mmdet.models.layers import multiclass_nms
print(json.dumps(dict(new=sorted(new), ops=sys.modules['mmcv._ext'].__file__)))
"""


def ops_of(site: Path, vitplug: Path, cwd: Path) -> None:
    """Checks that mmdet finds the ops of vitplug, which Python has not imported before, by a site-packages."""
    # -S: not those of the environment in which the tests run, but its packages.
    packages = os.pathsep.join(path for path in sys.path if path and Path(path) != ROOT and 'tests' not in path)
    code = MMDET_FIRST.replace('SITE', repr(str(site)))
    found = printed(code, f'{site}{os.pathsep}{packages}', cwd, '-S')
    assert Path(found['ops']) == vitplug / 'ops.py'
    assert not {'vitplug', 'torch', 'mmcv'} & set(found['new'])


def test_mmdet_finds_the_ops_of_a_wheel(wheel, tmp_path):
    ops_of(wheel, wheel / 'vitplug', tmp_path)


def test_editable_install_links_to_the_working_tree(source, tmp_path):
    build = f'from setuptools import build_meta; build_meta.build_editable({str(tmp_path)!r})'
    for _ in range(2):
        done = subprocess.run([sys.executable, '-c', build], cwd=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    [editable] = tmp_path.glob('*.whl')
    with zipfile.ZipFile(editable) as archive:
        archive.extractall(tmp_path / 'site-packages')
    ops_of(tmp_path / 'site-packages', source / 'vitplug', tmp_path)
    mim = source / 'vitplug' / '.mim'
    assert files_in(mim / 'configs') == files_in(source / 'configs')
    assert (mim / 'model-index.yml').resolve() == (source / 'model-index.yml').resolve()
