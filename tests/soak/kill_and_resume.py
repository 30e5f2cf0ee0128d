"""Kills trainings of the three digits tasks at random and checks that they end as if nobody had.

    python tests/soak/kill_and_resume.py [--kills 40] [--writing 0.3] [--work-dir DIR] [--tasks NAME ...]

Each task is trained once undisturbed; then as often as asked for it is started, killed with SIGKILL at a random moment
(or in the middle of writing a checkpoint, which a slowed writer makes last) and started again with `--resume` until
it ends. The last checkpoints must agree bit for bit and the metrics of every validation too. A line per kill goes to
`kills.jsonl`; the exit status is 1 if any training ended otherwise.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from vitplug.datasets.digit_scenes import make_digit_scenes

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / 'configs' / 'digits'
WORKERS = [f'{split}_dataloader.num_workers=2' for split in ('train', 'val')]
ITERATIONS = [
    'train_cfg.max_iters=24',
    'train_cfg.val_interval=12',
    'default_hooks.checkpoint.interval=6',
    'train_dataloader.batch_size=2',
]
TASKS = {
    'classification': (
        'vit-mini-p4-cb_1xb32-14e_digits-32x32.py',
        [
            'train_cfg.max_epochs=4',
            'train_cfg.val_interval=2',
            'train_dataloader.batch_size=16',
            'model.backbone.drop_rate=0.1',
        ],
    ),
    'segmentation': ('vit-mini-p8-cb_upernet_1xb8-1200i_digits-128x128.py', ITERATIONS),
    'detection': ('swin-mini-p4-w4-cb_mask-rcnn_1xb8-400i_digits-128x128.py', ITERATIONS),
}
SHARED = ['default_hooks.ema.type=EMAHook', 'default_hooks.logger.interval=2']
COMPARED = ('state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers')

# The real program, with a writer that stops again and again.
SLOW_TRAIN = """
import time
from vitplug.runs import training_commands
from vitplug.files.atomic import AtomicBackend
def write(self, path, content):
    with open(path, 'wb') as file:
        for start in range(0, len(content), max(1, len(content) // 20)):
            file.write(content[start : start + max(1, len(content) // 20)])
            file.flush()
            time.sleep(0.05)
AtomicBackend.write = write
training_commands.train()
"""


def start(task: str, work_dir: Path, resume: Sequence[str] = (), slow: bool = False) -> subprocess.Popen:
    """Starts a training; its output goes to `train.log` in the work dir."""
    config, options = TASKS[task]
    program = ['-c', SLOW_TRAIN] if slow else [str(ROOT / 'tools' / 'train.py')]
    command = [sys.executable, *program, str(CONFIGS / config), '--work-dir', str(work_dir)]
    command += [*resume, '--cfg-options', *options, *WORKERS, *SHARED]
    work_dir.mkdir(parents=True, exist_ok=True)
    with (work_dir / 'train.log').open('a') as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=work_dir)


def kill(training: subprocess.Popen, work_dir: Path, writing: bool, after: float) -> str:
    """Kills a training after so many seconds, or in the first write after them; says what happened."""
    begin = time.monotonic()
    while training.poll() is None:
        is_writing = any(work_dir.glob('.*.partial'))
        if time.monotonic() - begin > after and (is_writing or not writing):
            training.kill()
            training.wait()
            return 'writing' if is_writing else 'running'
        time.sleep(0.01)
    return f'ended by itself with status {training.returncode}'


def finish(task: str, work_dir: Path) -> int:
    """Resumes a training until it ends, and returns its status.

    One that was killed between its first checkpoint and the file that names it may ask for the checkpoint's name.
    """
    status = start(task, work_dir, ['--resume']).wait()
    unnamed = sorted(work_dir.glob('*.pth')) if not (work_dir / 'last_checkpoint').exists() else []
    return start(task, work_dir, ['--resume', str(unnamed[0])]).wait() if status == 2 and unnamed else status


def last_checkpoint(work_dir: Path) -> dict:
    """The newest checkpoint; fails if the file that names it names a broken one."""
    return torch.load((work_dir / 'last_checkpoint').read_text(), weights_only=False, map_location='cpu')


def differences(ours, theirs, where: str = '') -> list[str]:
    """Names of what is not equal bit for bit."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        names = {**ours, **theirs}
        return [line for name in names for line in differences(ours.get(name), theirs.get(name), f'{where}.{name}')]
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(ours) == len(theirs):
        return [
            line
            for i, pair in enumerate(zip(ours, theirs, strict=True))
            for line in differences(*pair, f'{where}[{i}]')
        ]
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return [] if ours.shape == theirs.shape and torch.equal(ours, theirs) else [where]
    return [] if ours == theirs else [where]


def metrics(work_dir: Path) -> dict:
    """The results of every validation: what was recorded for a step, however often it was validated."""
    found: dict = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for record in map(json.loads, path.read_text().splitlines()):
            if 'lr' not in record and 'loss' not in record:
                timeless = {name: value for name, value in record.items() if 'time' not in name}
                found.setdefault(str(record.get('step')), []).append(json.dumps(timeless, sort_keys=True))
    return {step: sorted(set(records)) for step, records in found.items()}


def one_kill(task: str, work_dir: Path, reference: Path, writing: bool, seconds: float, draw: random.Random) -> dict:
    """Trains with one kill and compares the end with the undisturbed training's."""
    shutil.rmtree(work_dir, ignore_errors=True)
    after = draw.uniform(0.3, 0.9) * seconds
    outcome = kill(start(task, work_dir, slow=writing), work_dir, writing, after)
    if (work_dir / 'last_checkpoint').exists():
        last_checkpoint(work_dir)
    resumed = finish(task, work_dir)
    ours, theirs = last_checkpoint(work_dir), last_checkpoint(reference)
    wrong = [line for name in COMPARED for line in differences(ours.get(name), theirs.get(name), name)]
    wrong += ['metrics'] if metrics(work_dir) != metrics(reference) else []
    return dict(
        task=task, outcome=outcome, after=round(after, 2), status=resumed, equal=not wrong and not resumed,
        differences=wrong[:5],
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--kills', type=int, default=40)
    parser.add_argument('--writing', type=float, default=0.3, help='share of the kills in the middle of a write')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/kill_and_resume'))
    parser.add_argument('--tasks', nargs='+', choices=TASKS, default=list(TASKS))
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    folder = args.work_dir.absolute()
    data = make_digit_scenes(folder / 'digits', num_classification=(100, 20), num_scenes=(20, 4))
    os.environ['VITPLUG_DIGITS'] = str(data)
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    seconds = {}
    for task in args.tasks:
        reference = folder / task / 'undisturbed'
        shutil.rmtree(reference, ignore_errors=True)
        begin = time.monotonic()
        if start(task, reference).wait():
            print(f'the undisturbed training failed: {reference / "train.log"}')
            return 1
        seconds[task] = time.monotonic() - begin
        print(f'{task}: {seconds[task]:.0f} s undisturbed', flush=True)
    draw, killed, attempts = random.Random(args.seed), [], 0
    while len(killed) < args.kills:
        task = args.tasks[attempts % len(args.tasks)]
        # Spread evenly: any number of kills has this share of them.
        writing = int((len(killed) + 1) * args.writing) > int(len(killed) * args.writing)
        result = one_kill(task, folder / task / 'killed', folder / task / 'undisturbed', writing, seconds[task], draw)
        attempts += 1
        print(f'{len(killed) + 1:3}/{args.kills} {json.dumps(result)}', flush=True)
        with (folder / 'kills.jsonl').open('a') as file:
            file.write(json.dumps(result) + '\n')
        if result['outcome'].startswith('ended') and result['equal']:
            continue  # it was faster than the kill
        killed.append(result)
    equal = sum(result['equal'] for result in killed)
    writing = sum(result['outcome'] == 'writing' for result in killed)
    print(f'{equal} of {len(killed)} killed trainings ended bit-equal, {writing} of them killed while writing')
    return int(equal < len(killed))


if __name__ == '__main__':
    sys.exit(main())
