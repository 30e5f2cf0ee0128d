"""Threads on a shared machine: OpenMP's variables, and the cores that affinity and cgroups leave."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import cv2
import pytest
import torch
from mmengine.utils.dl_utils import set_multi_processing
from torch.utils.data import DataLoader

from vitplug import threads

ROOT = Path(__file__).resolve().parents[1]
TOOLS = sorted((ROOT / 'tools').rglob('*.py'))
VARIABLES = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY', 'OMP_NUM_THREADS', 'OPENCV_FOR_THREADS_NUM')


@pytest.fixture
def machine(monkeypatch):
    """Sets the cores by affinity, the quota and the variables, and gives the variables after `configure`."""

    def machine(affinity=8, quota=math.inf, **variables):
        monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: set(range(affinity)))
        monkeypatch.setattr(threads, 'cpu_quota', lambda: quota)
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        threads.configure()
        return {name: os.environ[name] for name in VARIABLES[:3] if name in os.environ}

    return machine


# --- variables ---


@pytest.mark.parametrize(
    'settings, expected',
    [
        ({}, dict(GOMP_SPINCOUNT='1000')),
        (dict(quota=8.0), dict(GOMP_SPINCOUNT='1000')),
        (dict(quota=2.5), dict(GOMP_SPINCOUNT='1000', OMP_NUM_THREADS='3')),
        (dict(quota=0.2), dict(GOMP_SPINCOUNT='1000', OMP_NUM_THREADS='1')),
    ],
)
def test_what_the_user_has_not_set(machine, settings, expected):
    assert machine(**settings) == expected
    assert os.environ['OPENCV_FOR_THREADS_NUM'] == '1'


@pytest.mark.parametrize(
    'variables, added',
    [
        (dict(GOMP_SPINCOUNT='30 k'), dict(OMP_NUM_THREADS='2')),
        (dict(GOMP_SPINCOUNT='INFINITY'), dict(OMP_NUM_THREADS='2')),
        (dict(OMP_WAIT_POLICY='passive'), dict(OMP_NUM_THREADS='2')),
        (dict(OMP_NUM_THREADS='8'), dict(GOMP_SPINCOUNT='1000')),
        (dict(OMP_NUM_THREADS='4,2', OMP_WAIT_POLICY='ACTIVE'), {}),
    ],
)
def test_what_the_user_has_set_stays(machine, capsys, variables, added):
    assert machine(quota=2.0, **variables) == {**variables, **added}
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    'name, value',
    [
        ('GOMP_SPINCOUNT', ''),
        ('GOMP_SPINCOUNT', '-5'),
        ('GOMP_SPINCOUNT', 'little'),
        ('OMP_WAIT_POLICY', 'lazy'),
        ('OMP_NUM_THREADS', '0'),
        ('OMP_NUM_THREADS', 'two'),
        ('OMP_NUM_THREADS', '2,'),
    ],
)
def test_bad_values_count_as_not_set(machine, capsys, name, value):
    assert machine(quota=2.0, **{name: value}) == dict(GOMP_SPINCOUNT='1000', OMP_NUM_THREADS='2')
    assert f'warning: {name}={value!r} is ignored: expected ' in capsys.readouterr().err


@pytest.mark.integration
def test_openmp_takes_and_refuses_the_same_values():
    """libgomp complains of a value that it does not take when it is loaded."""
    library = next(Path(torch.__file__).parent.parent.glob('torch*/**/libgomp*'), None)
    if library is None:
        pytest.skip('this torch has no libgomp of its own')
    taken = [('GOMP_SPINCOUNT', '30 k'), ('GOMP_SPINCOUNT', 'infinite'), ('OMP_WAIT_POLICY', 'Passive')]
    refused = [('GOMP_SPINCOUNT', 'little'), ('OMP_WAIT_POLICY', 'lazy'), ('OMP_NUM_THREADS', '0')]
    for name, value in taken + refused:
        load = [sys.executable, '-S', '-c', f'import ctypes; ctypes.CDLL({str(library)!r})']
        env = {**{key: text for key, text in os.environ.items() if key not in VARIABLES}, name: value}
        done = subprocess.run(load, env=env, capture_output=True, text=True, check=True)
        assert ('Invalid value' in done.stderr) == ((name, value) in refused), (name, value, done.stderr)
        assert bool(threads.VALUES[name][0].fullmatch(value)) == ((name, value) in taken)


FIRST_IMPORT_OF_TORCH = """
import json, os, runpy, sys

class BeforeTorch:
    def find_spec(self, name, path=None, target=None):
        if name == 'torch':
            raise SystemExit

ARGUMENTS = {'doctor.py': [], 'demo.py': ['--dry-run']}
sys.meta_path.insert(0, BeforeTorch())
found = {}
for tool in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition('.')[0] in ('vitplug', 'mmengine')]:
        del sys.modules[name]
    os.environ.pop('GOMP_SPINCOUNT', None)
    sys.argv[:] = [tool, *ARGUMENTS.get(os.path.basename(tool), ['config', 'other'])]
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
def test_every_tool_sets_them_before_it_loads_torch():
    tools = [*map(str, TOOLS), str(ROOT / 'vitplug' / 'doctor.py')]
    env = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    done = subprocess.run(
        [sys.executable, '-c', FIRST_IMPORT_OF_TORCH, *tools], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    without_torch = {
        'camvid.py',
        'cifar10.py',
        'fashion_mnist.py',
        'make_digit_scenes.py',
        'make_garment_scenes.py',
        'nuclei.py',
        'pooled_splits.py',
    }
    expected = {Path(tool).name: None if Path(tool).name in without_torch else '1000' for tool in tools}
    assert json.loads(done.stdout) == expected


class ThreadsOfWorker:
    """A data set whose samples are the worker's numbers of threads."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return torch.get_num_threads(), cv2.getNumThreads()


def test_workers_of_data_loaders_have_one_thread():
    before = torch.get_num_threads(), cv2.getNumThreads()
    try:
        torch.set_num_threads(2)
        cv2.setNumThreads(2)
        set_multi_processing()  # as mmengine's runner does
        assert next(iter(DataLoader(ThreadsOfWorker(), batch_size=None, num_workers=1))) == [1, 1]
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def test_xdist_starts_a_worker_for_each_core(pytestconfig, monkeypatch):
    if not pytestconfig.pluginmanager.hasplugin('xdist'):
        pytest.skip('needs pytest-xdist')
    count = pytestconfig.hook.pytest_xdist_auto_num_workers
    monkeypatch.delenv('PYTEST_XDIST_AUTO_NUM_WORKERS', raising=False)
    monkeypatch.setattr(threads, 'cores', lambda: 37)
    assert count(config=pytestconfig) == 37
    monkeypatch.setenv('PYTEST_XDIST_AUTO_NUM_WORKERS', '5')
    assert count(config=pytestconfig) == 5


# --- cgroups ---


@pytest.fixture
def system(tmp_path):
    """Writes the files of a system, and gives the CPU quota of a process on it."""

    def system(cgroup, mounts, files):
        proc = tmp_path / 'proc'
        proc.mkdir()
        (proc / 'cgroup').write_text(cgroup)
        other = '21 1 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n'
        (proc / 'mountinfo').write_text(other + mounts.replace('MOUNT', str(tmp_path)))
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{text}\n')
        return threads.cpu_quota(proc)

    return system


V2 = '30 21 0:26 / MOUNT/cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n'
V1 = (
    '31 21 0:27 / MOUNT/memory rw - cgroup cgroup rw,memory\n'
    '32 21 0:28 / MOUNT/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n'
)
V1_OWN = '12:memory:/job\n4:cpu,cpuacct:/job/step\n1:name=systemd:/init\n'


@pytest.mark.parametrize(
    'files, quota',
    [
        ({'cg/job/step/cpu.max': '150000 100000'}, 1.5),
        ({'cg/job/step/cpu.max': 'max 100000'}, math.inf),
        ({'cg/job/step/cpu.max': 'max 100000', 'cg/job/cpu.max': '50000 25000'}, 2.0),
        ({'cg/job/step/cpu.max': '400000 100000', 'cg/job/cpu.max': '300000 100000'}, 3.0),
        ({'cg/cpu.max': '250000 100000', 'cg/elsewhere/cpu.max': '1000 100000'}, 2.5),
        ({}, math.inf),
    ],
)
def test_quota_of_version_2(system, files, quota):
    assert system('0::/job/step\n', V2, files) == quota


@pytest.mark.parametrize(
    'files, quota',
    [
        ({'cpu/job/step/cpu.cfs_quota_us': '50000', 'cpu/job/step/cpu.cfs_period_us': '100000'}, 0.5),
        ({'cpu/job/step/cpu.cfs_quota_us': '-1', 'cpu/job/step/cpu.cfs_period_us': '100000'}, math.inf),
        ({'cpu/job/cpu.cfs_quota_us': '600000', 'cpu/job/cpu.cfs_period_us': '200000'}, 3.0),
        ({'memory/job/cpu.cfs_quota_us': '1000', 'memory/job/cpu.cfs_period_us': '100000'}, math.inf),
    ],
)
def test_quota_of_version_1(system, files, quota):
    assert system(V1_OWN, V1, files) == quota


def test_smaller_quota_of_both_versions(system):
    files = {
        'cg/cpu.max': '200000 100000',
        'cpu/cpu.cfs_quota_us': '100000',
        'cpu/cpu.cfs_period_us': '100000',
    }
    assert system('0::/\n4:cpu:/\n', V1 + V2, files) == 1.0


@pytest.mark.parametrize('own', ['0::/docker/abc\n', '0::/docker/abc/task\n', '0::/\n', '0::/../other\n'])
def test_container_sees_its_part_of_the_tree_at_the_mount(system, own):
    mount = V2.replace(' / MOUNT/cg ', ' /docker/abc MOUNT/c\\040g ')
    assert system(own, mount, {'c g/cpu.max': '120000 100000'}) == 1.2


@pytest.mark.parametrize('text', ['', 'many', '0 100000', '100000', '-1 100000', '100000 0', '1 2 3', '1.5 1.0'])
def test_bad_quota_is_ignored_with_a_warning(system, capsys, text):
    assert system('0::/job\n', V2, {'cg/job/cpu.max': text, 'cg/cpu.max': '200000 100000'}) == 2.0
    error = capsys.readouterr().err
    assert 'job/cpu.max is ignored' in error and f'not {text!r}' in error


def test_no_cgroups_at_all(tmp_path):
    assert threads.cpu_quota(tmp_path) == math.inf


def test_cores_without_affinity(monkeypatch):
    monkeypatch.delattr(os, 'sched_getaffinity')
    monkeypatch.setattr(os, 'cpu_count', lambda: None)
    monkeypatch.setattr(threads, 'cpu_quota', lambda: math.inf)
    assert threads.cores() == 1
