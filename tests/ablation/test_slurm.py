"""Cells as jobs of Slurm: what is submitted, and a grid of toy cells on a cluster of one node."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from slurm_node import missing, slurm_node
from toy_cells import ToyOnNodes, assert_each_done_once, lines, make_cells, python_path

from vitplug.ablation.controller import Controller
from vitplug.ablation.engines.engine import LOST, module_command
from vitplug.ablation.engines.launch import Share, node_command, run_worker
from vitplug.ablation.engines.slurm import CellOnNodes, Queue, SlurmEngine, SlurmJob
from vitplug.progress import StatusLine

pytest.importorskip('submitit')
needs_slurm = pytest.mark.skipif(bool(missing()), reason=f'not here: {missing()} (packages slurm-wlm, munge)')


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs in place of Slurm's; sbatch keeps the script that it is given."""
    folder = tmp_path / 'programs'
    folder.mkdir()
    scripts = dict(srun='', sbatch='cp "$1" "$KEPT/script"; echo Submitted batch job 7', squeue='cat "$KEPT/queue"')
    scripts |= dict(scancel='echo "$@" >> "$KEPT/cancelled"', scontrol='echo node3; echo node4')
    for name, script in scripts.items():
        (folder / name).write_text(f'#!/bin/sh\n{script}\n')
        (folder / name).chmod(0o755)
    (tmp_path / 'queue').touch()
    monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
    monkeypatch.setenv('KEPT', str(tmp_path))
    return tmp_path


def engine_of(cell=CellOnNodes, **settings):
    engine = SlurmEngine(settings.pop('share', Share()), **settings)
    engine.cell = cell
    return engine


# --- what is submitted ---


def test_job_of_several_nodes(programs):
    cell = programs / 'cells' / 'none_seed0'
    cell.mkdir(parents=True)
    engine = engine_of(share=Share(nodes=2, gpus=4, cpus=16), partition='gpu', minutes=90)
    assert engine.submit(cell).number == '7' and engine.slots == 100
    script = (programs / 'script').read_text()
    wanted = 'nodes=2 ntasks-per-node=1 gpus-per-node=4 cpus-per-task=16 partition=gpu time=90 requeue signal=USR2@120'
    for option in [*wanted.split(), f'comment={cell}', 'job-name=vitplug-none_seed0', 'open-mode=append']:
        assert f'#SBATCH --{option}\n' in script, option
    assert 'srun ' in script and 'submitit.core._submit' in script


def test_job_with_defaults(programs):
    cell = programs / 'cell'
    cell.mkdir()
    engine_of(minutes=1).submit(cell)
    script = (programs / 'script').read_text()
    assert '--signal=USR2@30\n' in script and '--nodes=1\n' in script
    assert not any(option in script for option in ('--gpus', '--partition', '--cpus'))


def test_command_of_each_node(programs, monkeypatch):
    monkeypatch.setenv('SLURM_JOB_NODELIST', 'node[3-4]')
    cell = CellOnNodes(Path('cell'), Share(nodes=2, gpus=4), ('--unsafe-unpickle',))
    torchrun = [*module_command('torch.distributed.run'), '--no-python', '--nnodes', '2', '--nproc-per-node', '4']
    worker = [*module_command('vitplug.ablation.worker'), 'cell', '--unsafe-unpickle', '--launcher', 'pytorch']
    worker += ['--status', 'file']
    for node in (0, 1):
        meeting = ['--node-rank', str(node), '--master-addr', 'node3', '--master-port', '20123']
        assert cell.command('40123', node, Path('file')) == [*torchrun, *meeting, *worker]


def test_command_of_one_node():
    alone = [*module_command('vitplug.ablation.worker'), 'cell']
    assert node_command(Path('cell'), Share(gpus=1), (), Path('file')) == alone
    command = node_command(Path('cell'), Share(gpus=2), (), Path('file'))
    assert command[3:9] == ['--no-python', '--nnodes', '1', '--nproc-per-node', '2', '--standalone']


@pytest.mark.integration
def test_worker_imports_nothing_from_the_current_folder(tmp_path):
    """As `tools/train.py` does not: the folder of somebody's data may have a json.py."""
    for name in ('json', 'runpy', 'torch', 'argparse'):
        (tmp_path / f'{name}.py').write_text('raise SystemExit(9)')
    for module in ('vitplug.ablation.worker', 'torch.distributed.run'):
        ended = subprocess.run([*module_command(module), '--help'], cwd=tmp_path, capture_output=True, text=True)
        assert ended.returncode == 0 and 'usage' in ended.stdout, ended.stderr


@pytest.mark.parametrize('settings', [dict(nodes=0), dict(gpus=-1), dict(cpus=0)])
def test_share_that_is_too_small(settings):
    with pytest.raises(ValueError, match=r'--(nodes 0|gpus -1|cpus 0): expected at least'):
        Share(**settings)


def test_refusals(programs, monkeypatch):
    with pytest.raises(ValueError, match='--jobs 0: expected at least 1'):
        engine_of(jobs=0)
    (programs / 'programs' / 'sbatch').write_text('#!/bin/sh\necho no such partition >&2; exit 1\n')
    with pytest.raises(OSError, match=r'Slurm refused the job: .*no such partition'):
        engine_of().submit(programs)
    monkeypatch.setenv('PATH', '/nowhere')
    with pytest.raises(ValueError, match='no srun: start the command on a login node'):
        engine_of()
    monkeypatch.setitem(sys.modules, 'submitit', None)
    with pytest.raises(ModuleNotFoundError, match='pip install'):
        engine_of()


# --- how a job ends ---


def test_status_of_a_job(programs):
    seconds = iter(range(0, 1000, 10))
    queue = Queue(lambda: next(seconds))
    (programs / 'slurm').mkdir()
    job = SlurmJob('7', programs, queue)
    for state, status in [('PENDING', None), ('RUNNING', None), ('REQUEUED', None), ('COMPLETED', LOST)]:
        (programs / 'queue').write_text(f'6|RUNNING|x\n7|{state}|{programs}\n')
        assert job.poll() == status
    (programs / 'queue').write_text('')
    assert job.poll() == LOST
    (programs / 'slurm' / '7.status').write_text('70')
    assert job.poll() == 70


def test_banners_and_empty_answers_of_slurm(programs):
    seconds = iter(range(0, 1000, 10))
    queue = Queue(lambda: next(seconds))
    (programs / 'queue').write_text(f'*** Maintenance | on Monday ***\n\n7|RUNNING|{programs}\n')
    job = SlurmJob('7', programs, queue)
    assert job.poll() is None and queue.find(str(programs)) == '7'
    (programs / 'queue').write_text('*** Maintenance ***\n')
    assert [job.poll(), job.poll()] == [None, LOST]


def test_silent_slurm_ends_no_job_and_attaches_none(programs):
    (programs / 'programs' / 'squeue').write_text('#!/bin/sh\necho no contact >&2; exit 1\n')
    assert SlurmJob('7', programs, Queue()).poll() is None
    with pytest.raises(OSError, match='squeue: no contact'):
        engine_of().attach(programs)


def test_stop_takes_a_job_out_of_the_queue_or_asks_its_worker(programs):
    (programs / 'slurm').mkdir()
    job = SlurmJob('7', programs, Queue())
    for _ in range(2):
        job.stop()
    assert (programs / 'cancelled').read_text() == '--state=PENDING 7\n--signal=USR2 7\n'
    assert (programs / 'slurm' / '7.stop').is_file() and job.poll() == 75


def test_status_of_the_first_process_counts_under_torchrun(tmp_path):
    status = tmp_path / 'status'
    script = 'import sys; open(sys.argv[2], "w").write("70"); sys.exit(1)'
    command = [sys.executable, '-c', script, '--status', str(status)]
    assert run_worker(command, tmp_path, status, lambda: False) == 70
    command[2] = 'import sys; sys.exit(1)'
    assert run_worker(command, tmp_path, status, lambda: False) == LOST
    assert run_worker(command, tmp_path, status, lambda: True) == 75


# --- on a cluster of one node ---


@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PATH', f'{os.environ["PATH"]}:/usr/sbin')
        patch.setenv('PYTHONPATH', python_path())
        with slurm_node(tmp_path_factory.mktemp('slurm')) as config:
            patch.setenv('SLURM_CONF', str(config))
            yield config


def wait_for(path, what, seconds=120):
    until = time.monotonic() + seconds
    while not (path.is_file() and what(path.read_text())):
        assert time.monotonic() < until, path
        time.sleep(0.2)


@pytest.mark.integration
@needs_slurm
@pytest.mark.slow
def test_grid_with_killed_preempted_and_left_jobs(cluster, tmp_path):
    """Three slow cells: one is killed, one preempted, one left to a second controller; each of all is done once."""
    number = int(os.environ.get('VITPLUG_TOY_CELLS', 12))
    cells = make_cells(tmp_path / 'grid', number, slow=(0, 1))
    # A job that a killed controller has left.
    left = make_cells(tmp_path / 'left', 1, slow=(0,))[0]
    job = engine_of(ToyOnNodes).submit(left.folder)
    wait_for(left.folder / 'steps', bool)

    def disturb():
        wait_for(cells[0].folder / 'steps', bool)
        os.kill(int(lines(cells[0], 'begun')[0]), signal.SIGKILL)
        wait_for(cells[1].folder / 'steps', bool)
        rows = subprocess.run(['squeue', '-h', '-o', '%i|%k'], capture_output=True, text=True).stdout.split()
        preempted = next(row.split('|')[0] for row in rows if row.endswith(f'|{cells[1].folder}'))
        subprocess.run(['scancel', '--signal=USR2', preempted], check=True)
        subprocess.run(['scontrol', 'requeue', job.number], check=True)

    thread = threading.Thread(target=disturb)
    thread.start()
    engine = engine_of(ToyOnNodes, jobs=8)
    outcome = Controller(engine, line=StatusLine(io.StringIO())).run([left, *cells])
    thread.join()
    assert len(outcome.done) == number + 1 and not outcome.failed
    assert_each_done_once([left, *cells])
    assert len(lines(cells[0], 'begun')) == 2 and len(lines(left, 'begun')) == 2
    assert lines(cells[1], 'asked') == ['15'] and len(lines(cells[1], 'begun')) == 2
    # The same job went on in the left and in the preempted cell.
    for cell in (left, cells[1]):
        assert len(list((cell.folder / 'slurm').glob('*.status'))) == 1
