"""The tools as users call them: real trainings of two iterations."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


# In the place of what the scripts start: they print what they are called with, and srun runs the rest.
PROGRAMS = {
    'python': 'echo $NNODES $NODE_RANK $MASTER_ADDR $PORT $RDZV_ID; printf "%s\\n" "$@"',
    'srun': 'while [ "${1#-}" != "$1" ]; do echo "srun $1"; shift; done; exec "$@"',
    'scontrol': 'echo gpu3; echo gpu4',
}


def test_slurm_starts_one_torchrun_on_each_node(tmp_path):
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f'#!/bin/sh\n{text}\n')
        (tmp_path / name).chmod(0o755)
    env = dict(PATH=f'{tmp_path}:{os.environ["PATH"]}', GPUS='64', SRUN_ARGS='--quiet --mem=0', SLURM_NNODES='8')
    env |= dict(SLURM_NODEID='7', SLURM_JOB_ID='40123', SLURM_JOB_NODELIST='gpu[3-10]')
    command = ['bash', str(ROOT / 'tools' / 'slurm_train.sh'), 'part', 'job', 'a.py', '--cfg-options', 'a=b c']
    lines = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    srun = ['--partition=part', '--job-name=job', '--nodes=8', '--ntasks-per-node=1', '--gres=gpu:8', '--mem=0']
    srun += ['--quiet', '--cpus-per-task=40', '--kill-on-bad-exit=1']
    torchrun = ['--nnodes=8', '--nproc-per-node=8', '--rdzv-backend=c10d', '--rdzv-endpoint=gpu3:20123']
    torchrun += ['--rdzv-id=40123', '--rdzv-conf=is_host=0', '-m', 'torch.distributed.run']
    tool = [str(ROOT / 'tools' / 'train.py'), 'a.py', '--launcher', 'pytorch', '--cfg-options', 'a=b c']
    assert sorted(lines[: len(srun)]) == sorted(f'srun {option}' for option in srun)
    assert lines[len(srun)] == '8 7 gpu3 20123 40123'
    assert sorted(lines[len(srun) + 1 : -len(tool)]) == sorted(torchrun) and lines[-len(tool) :] == tool


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
    begin = time.monotonic()
    while killed.poll() is None:  # a second one, too, up to the last moment
        assert time.monotonic() - begin < 300, 'it does not end'
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
