"""Trains the digits segmentation for 2,000 steps and checks that its memory stays flat.

    python tests/soak/long_training.py [--steps 2000] [--warm-up 200] [--bound 30] [--batch-size 8] [--work-dir DIR]

The training is the real program with the config's own model, data, batch size and hooks. Only the number of steps is
another, and it validates as often as it writes a checkpoint, so that all that recurs has been there once when warm-up
ends. Resident memory is read from outside, of the training process and of each loader worker, whenever the log tells
of a new step; every sample goes to `memory.jsonl` in the work dir.

The bound is 17 KB a step. One gray image of the batch, kept as the network sees it, is 64 KB, and the graph of one loss
many MB. What comes and goes within a step is up to 50 MB, of which medians and a fitted line show little. The exit
status is 1 if the training fails, or if it or a worker grows by more than the bound after warm-up.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak.memory import resident, trend

from vitplug.datasets.digit_scenes import make_digit_scenes

ROOT = Path(__file__).resolve().parents[2]
CONFIG = 'vit-mini-p8-cb_upernet_1xb8-1200i_digits-128x128.py'

Samples = dict[psutil.Process, list[tuple[int, float]]]


def start(work_dir: Path, options: list[str]) -> subprocess.Popen:
    """Starts the training; its output goes to `train.log` in the work dir."""
    command = [sys.executable, str(ROOT / 'tools' / 'train.py'), str(ROOT / 'configs' / 'digits' / CONFIG)]
    command += ['--work-dir', str(work_dir), '--cfg-options', *options]
    with (work_dir / 'train.log').open('w') as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=work_dir)


def last_step(work_dir: Path) -> int:
    """The last training step that the log tells of, 0 before the first."""
    steps = [0]
    for path in work_dir.glob('*/vis_data/scalars.json'):
        # A last line without its end is still being written.
        for line in path.read_text().splitlines(keepends=True):
            record = json.loads(line) if line.endswith('\n') else {}
            steps += [record['step']] if 'loss' in record else []
    return max(steps)


def watch(training: subprocess.Popen, work_dir: Path) -> Samples:
    """Samples of every process of a training as (step, MB), until it ends."""
    samples: Samples = defaultdict(list)
    trainer, seen = psutil.Process(training.pid), 0
    with (work_dir / 'memory.jsonl').open('w') as file:
        while training.poll() is None:
            step = last_step(work_dir)
            if step > seen:
                seen = step
                sizes = measured(trainer)
                for process, size in sizes.items():
                    samples[process].append((step, size))
                file.write(json.dumps(dict(step=step, mb=list(sizes.values()))) + '\n')
                file.flush()
                if step % 200 == 0:
                    print(f'step {step:5}: ' + ', '.join(f'{size:.1f} MB' for size in sizes.values()), flush=True)
            time.sleep(0.1)
    return samples


def measured(trainer: psutil.Process) -> dict[psutil.Process, float]:
    """The resident memory of the training process, first, and of its workers; none where it has just ended."""
    sizes = {}
    try:
        for process in (trainer, *trainer.children(recursive=True)):
            sizes[process] = resident(process)
    except psutil.NoSuchProcess:
        pass
    return sizes


def report(samples: Samples, warm_up: int, bound: float) -> bool:
    """Prints a line for each process; returns whether none grew beyond the bound."""
    fine = bool(samples)
    for index, series in enumerate(samples.values()):
        name = f'worker {index}' if index else 'training'
        memory = trend(series, warm_up)
        if memory is not None:
            fine = fine and memory.growth <= bound
            print(f'{name}: {memory}')
        elif not index:
            fine = False
            print(f'{name}: too few samples after warm-up')
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--steps', type=int, default=2000)
    parser.add_argument('--warm-up', type=int, default=200, help='steps before memory has to be flat')
    parser.add_argument('--bound', type=float, default=30, help='MB that a process may grow after warm-up')
    parser.add_argument('--every', type=int, default=20, help='steps from sample to sample')
    parser.add_argument('--batch-size', type=int, default=8, help="the config's is 8")
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/long_training'))
    args = parser.parse_args()
    if args.steps < args.warm_up + 5 * args.every:
        parser.error(f'--steps {args.steps} leaves too few samples after a warm-up of {args.warm_up}')
    folder = args.work_dir.absolute()
    # The scenes are those of the config; of the digits for classification there are as few as can be.
    data = make_digit_scenes(folder / 'digits', num_classification=(10, 10))
    os.environ['VITPLUG_DIGITS'] = str(data)
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    work_dir = folder / 'training'
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    options = [
        f'train_cfg.max_iters={args.steps}',
        f'train_cfg.val_interval={args.warm_up}',
        f'default_hooks.checkpoint.interval={args.warm_up}',
        f'default_hooks.logger.interval={args.every}',
        f'train_dataloader.batch_size={args.batch_size}',
    ]
    print(f'{CONFIG} with {" ".join(options)}', flush=True)
    begin = time.monotonic()
    training = start(work_dir, options)
    samples = watch(training, work_dir)
    fine = report(samples, args.warm_up, args.bound) and training.returncode == 0
    print(f'{"passed" if fine else "FAILED"}: {args.steps} steps in {time.monotonic() - begin:.0f} s, ', end='')
    print(f'exit status {training.returncode}, bound {args.bound:g} MB after step {args.warm_up}')
    return int(not fine)


if __name__ == '__main__':
    sys.exit(main())
