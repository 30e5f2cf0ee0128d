"""The tools as users call them: real trainings of two iterations, and errors that cost nothing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher_programs import write_programs

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs' / 'digits'
CLASSIFICATION = next(CONFIGS.glob('vit-mini-p4-cb_1xb32-14e_*.py'))
SEGMENTATION = next(CONFIGS.glob('*-cb_upernet_1xb8-1200i_*.py'))
DETECTION = next(CONFIGS.glob('*-cb_mask-rcnn_1xb8-400i_*.py'))

TINY_LOADERS = (
    'train_dataloader.batch_size=2',
    *(f'{split}_dataloader.num_workers=0' for split in ('train', 'val', 'test')),
    *(f'{split}_dataloader.persistent_workers=False' for split in ('train', 'val', 'test')),
)
TWO_ITERATIONS = {
    CLASSIFICATION: ('train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=10'),
    SEGMENTATION: ('train_cfg.max_iters=2', 'train_cfg.val_interval=2'),
    DETECTION: ('train_cfg.max_iters=2', 'train_cfg.val_interval=2'),
}
METRICS = {CLASSIFICATION: 'accuracy/top1', SEGMENTATION: 'mIoU', DETECTION: 'coco/segm_mAP'}


@pytest.fixture
def run(digits, tmp_path):
    """Runs a command in an empty folder, on the tiny data."""

    def run(*command, **variables):
        env = {**os.environ, 'VITPLUG_DIGITS': str(digits), 'OMP_NUM_THREADS': '1', **variables}
        return subprocess.run([*map(str, command)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)

    return run


def train(config, *options):
    return sys.executable, ROOT / 'tools' / 'train.py', config, '--work-dir', 'work', *options


def test_missing_data_names_the_command(run, tmp_path):
    done = run(*train(CLASSIFICATION), VITPLUG_DIGITS=str(tmp_path / 'none'))
    [line] = [line for line in done.stderr.splitlines() if line.startswith('error: ')]
    assert done.returncode == 2 and str(tmp_path / 'none') in line and 'make_digit_scenes.py' in line
    assert 'Traceback' not in done.stderr and not (tmp_path / 'work').exists()


@pytest.fixture
def started(tmp_path):
    """Runs a script beside programs that print what they are called with; gives the lines of each."""
    path = write_programs(tmp_path / 'bin')

    def started(script, *arguments, status=0, **variables):
        command = ['bash', ROOT / 'tools' / script, *arguments]
        env = {'PATH': path, **variables}
        done = subprocess.run([*map(str, command)], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        lines = done.stdout.splitlines()
        srun = [line.removeprefix('srun ') for line in lines if line.startswith('srun ')]
        node, torchrun, tool = [], [], [line for line in lines if not line.startswith('srun ')]
        while tool and '=' in tool[0] and not tool[0].startswith('-'):
            node.append(tool.pop(0))
        while tool and not tool[0].endswith('.py'):
            torchrun.append(tool.pop(0))
        return done.stderr, srun, node, torchrun, tool

    return started


TRAIN, TEST = (str(ROOT / 'tools' / name) for name in ('train.py', 'test.py'))


@pytest.mark.parametrize(('rank', 'host'), [('7', 0), (None, None)])
def test_eight_machines_meet_at_one(started, rank, host):
    place = dict(NNODES='8', MASTER_ADDR='gpu3', LOCAL_ADDR='10.0.0.3', RDZV_ID='a')
    _, _, _, torchrun, _ = started('dist_train.sh', 'a.py', 8, **place, **(dict(NODE_RANK=rank) if rank else {}))
    expected = ['--nnodes=8', '--nproc-per-node=8', '--local-addr=10.0.0.3', '--rdzv-id=a']
    expected += ['--rdzv-endpoint=gpu3:29500', '--rdzv-backend=c10d']
    expected += [] if rank is None else [f'--rdzv-conf=is_host={host}']
    assert sorted(torchrun) == sorted(['-m', 'torch.distributed.run', *expected])


@pytest.mark.parametrize(('gpus', 'nodes', 'per_node'), [('4', 1, 4), ('64', 8, 8)])
def test_slurm_starts_one_torchrun_on_each_node(started, gpus, nodes, per_node):
    _, srun, node, torchrun, tool = started(
        'slurm_train.sh', 'part', 'job', 'a.py', '--cfg-options', 'a=b c', GPUS=gpus, SRUN_ARGS='--quiet --mem=0'
    )
    expected = ['--partition=part', '--job-name=job', f'--nodes={nodes}', '--ntasks-per-node=1', '--quiet', '--mem=0']
    expected += [f'--gres=gpu:{per_node}', f'--cpus-per-task={5 * per_node}', '--kill-on-bad-exit=1']
    assert sorted(srun) == sorted(expected)
    assert node == [f'NNODES={nodes}', f'NODE_RANK={nodes - 1}', 'MASTER_ADDR=gpu3', 'PORT=20123', 'RDZV_ID=40123']
    expected = [f'--nnodes={nodes}', f'--nproc-per-node={per_node}', '--rdzv-backend=c10d']
    expected += ['--rdzv-endpoint=gpu3:20123', '--rdzv-id=40123', f'--rdzv-conf=is_host={int(nodes == 1)}']
    assert sorted(torchrun) == sorted(['-m', 'torch.distributed.run', *expected])
    assert tool == [TRAIN, 'a.py', '--launcher', 'pytorch', '--cfg-options', 'a=b c']


def test_slurm_tests_a_checkpoint_where_there_are_no_gpus(started):
    _, srun, _, _, tool = started('slurm_test.sh', 'part', 'job', 'a.py', 'a.pth', GPUS='2', GRES='')
    assert not any(option.startswith('--gres') for option in srun)
    assert tool == [TEST, 'a.py', '--launcher', 'pytorch', 'a.pth']


# --- trainings ---


@pytest.mark.parametrize(
    'config',
    [
        pytest.param(CLASSIFICATION, id='classification'),
        pytest.param(SEGMENTATION, id='segmentation', marks=pytest.mark.slow),
        pytest.param(DETECTION, id='detection', marks=pytest.mark.slow),
    ],
)
def test_train_resume_and_test(run, tmp_path, config):
    options = ('--cfg-options', *TINY_LOADERS, *TWO_ITERATIONS[config])
    done = run(*train(config, *options))
    assert done.returncode == 0, done.stderr[-2000:]
    assert f'{METRICS[config]}: ' in done.stdout
    checkpoint = Path((tmp_path / 'work' / 'last_checkpoint').read_text().strip())
    again = run(*train(config, *options), '--resume')
    assert again.returncode == 0 and 'resumed' in again.stdout
    written = ('--work-dir', 'test', '--out', 'out.pkl', '--show-dir', 'pictures')
    tested = run(sys.executable, ROOT / 'tools' / 'test.py', config, checkpoint, *written, *options)
    assert tested.returncode == 0, tested.stderr[-2000:]
    assert f'{METRICS[config]}: ' in tested.stdout
    assert (tmp_path / 'out.pkl').stat().st_size > 0
    assert list((tmp_path / 'test' / 'pictures').rglob('*.png'))


@pytest.mark.slow
def test_sigterm_and_bad_files_at_once(run, tmp_path, digits):
    """A scheduler's signal to all processes of the job, workers included, and a damaged image; then the same end."""
    data = Path(shutil.copytree(digits, tmp_path / 'data'))
    next((data / 'ade/images/training').iterdir()).write_bytes(b'')
    options = ('--cfg-options', 'train_dataloader.batch_size=2', 'train_cfg.max_iters=6', 'train_cfg.val_interval=6')
    env = {**os.environ, 'VITPLUG_DIGITS': str(data), 'OMP_NUM_THREADS': '1'}
    killed = subprocess.Popen(
        [*map(str, train(SEGMENTATION, *options, 'default_hooks.logger.interval=1', 'train_cfg.max_iters=500'))],
        cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    for line in killed.stdout:
        if 'Iter(train)' in line:
            break
    while killed.poll() is None:  # a second one, too, up to the last moment
        os.killpg(killed.pid, signal.SIGTERM)
        time.sleep(0.01)
    _, errors = killed.communicate(timeout=120)
    # A signal may come behind the end of Python, while torch's libraries are taken down.
    assert killed.returncode in (1, -signal.SIGTERM), errors[-2000:]
    assert errors.splitlines()[-1].startswith('error: stopped by SIGTERM') and '--resume' in errors
    assert 'interrupted.pth' in (tmp_path / 'work' / 'last_checkpoint').read_text()
    again = run(*train(SEGMENTATION, '--resume', *options, 'train_cfg.max_iters=30'), VITPLUG_DIGITS=str(data))
    assert again.returncode == 0, again.stderr[-2000:]
    assert 'another sample takes its place' in again.stdout + again.stderr
    assert not list((tmp_path / 'work').glob('interrupted*'))


@pytest.mark.slow
def test_two_processes_without_a_gpu(run, tmp_path):
    options = ('--cfg-options', *TINY_LOADERS, *TWO_ITERATIONS[SEGMENTATION])
    path = f'{Path(sys.executable).parent}:{os.environ["PATH"]}'
    script = ('bash', ROOT / 'tools' / 'dist_train.sh', SEGMENTATION, 2, '--work-dir', 'work', *options)
    # Whatever aborts a process says why long before the last lines, which are the launcher's.
    done = run(*script, PATH=path, CUDA_VISIBLE_DEVICES='', PYTHONFAULTHANDLER='1')
    assert done.returncode == 0, done.stderr
    assert 'mIoU: ' in done.stdout
    assert (tmp_path / 'work' / 'iter_2.pth').is_file()
