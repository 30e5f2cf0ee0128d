"""Times the digits classification on a quiet machine and beside a busy process, with each way of waiting for threads.

    python tests/soak/contention.py [--iterations 60] [--rounds 3] [--threads 2] [--work-dir DIR]

Every run is the real program with the config's own model, data, batch size and hooks, for one short epoch. The busy
process is one thread that counts. Conditions take turns, every other round in reverse order. A run's time is the mean
of its iterations after the first ten; a cell has the median over the rounds, their range, and the ratio to the quiet
time as libgomp waits by itself. The exit status is 1 if the setting of `vitplug.threads` misses a bound: 1.03 quiet,
2.3 beside a busy process.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import mean, median

from vitplug.datasets.digit_scenes import make_digit_scenes
from vitplug.tables import markdown_table
from vitplug.threads import SPIN_COUNT, VALUES

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / 'configs' / 'digits' / 'vit-mini-p4-cb_1xb32-14e_digits-32x32.py'
BATCH = 32
LOGGED = 10  # iterations from log entry to log entry; the first entry does not count

# 300,000 turns are libgomp's own where no variable is set.
BY_ITSELF, OURS, PASSIVE = 'libgomp by itself', f'GOMP_SPINCOUNT={SPIN_COUNT}', 'OMP_WAIT_POLICY=PASSIVE'
SETTINGS = {
    BY_ITSELF: {'GOMP_SPINCOUNT': '300000'},
    OURS: {'GOMP_SPINCOUNT': str(SPIN_COUNT)},
    PASSIVE: {'OMP_WAIT_POLICY': 'PASSIVE'},
}
QUIET, BUSY = 'quiet', 'beside a busy process'
BOUNDS = {QUIET: 1.03, BUSY: 2.3}

Times = dict[tuple[str, str], list[float]]


@contextmanager
def neighbour(load: str) -> Iterator[None]:
    """A process with one busy thread, if the load is `BUSY`."""
    if load == QUIET:
        yield
        return
    busy = subprocess.Popen([sys.executable, '-S', '-c', 'while True: pass'])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def step_seconds(work_dir: Path, setting: str, threads: int) -> float:
    """Runs one training and returns its seconds for an iteration.

    Raises:
        CalledProcessError: if the training fails; its output is in `train.log` of the work dir.
    """
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    env = {key: value for key, value in os.environ.items() if key not in VALUES}
    env |= {'OMP_NUM_THREADS': str(threads), **SETTINGS[setting]}
    options = ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1', f'train_dataloader.batch_size={BATCH}']
    options += [f'default_hooks.logger.interval={LOGGED}', f'log_processor.window_size={LOGGED}']
    command = [sys.executable, str(ROOT / 'tools' / 'train.py'), str(CONFIG), '--work-dir', str(work_dir)]
    with (work_dir / 'train.log').open('w') as log:
        subprocess.run([*command, '--cfg-options', *options], env=env, stdout=log, stderr=log, check=True)
    return mean(list(logged_seconds(work_dir))[1:])


def logged_seconds(work_dir: Path) -> Iterator[float]:
    """Seconds for an iteration, a mean for each log entry of the training."""
    for path in work_dir.glob('*/vis_data/scalars.json'):
        for record in map(json.loads, path.read_text().splitlines()):
            if 'loss' in record:
                yield record['time']


def measure(folder: Path, rounds: int, threads: int) -> Times:
    """Seconds for an iteration under every setting and load, a value for each round."""
    times, conditions = defaultdict(list), list(product(SETTINGS, BOUNDS))
    for number in range(rounds):
        for setting, load in conditions[:: -1 if number % 2 else 1]:
            with neighbour(load):
                seconds = step_seconds(folder / 'training', setting, threads)
            times[setting, load].append(seconds)
            print(f'round {number + 1}: {setting}, {load}: {1000 * seconds:.0f} ms', flush=True)
    return times


def ratio(times: Times, setting: str, load: str) -> float:
    """Median time over the quiet one as libgomp waits by itself."""
    return median(times[setting, load]) / median(times[BY_ITSELF, QUIET])


def table(times: Times) -> str:
    """The times in ms, a row for each setting, as Markdown."""

    def cell(setting: str, load: str) -> str:
        low, middle, high = (f'{1000 * f(times[setting, load]):.0f}' for f in (min, median, max))
        return f'{middle} ({low} to {high}), {ratio(times, setting, load):.2f} x'

    rows = [(setting, *(cell(setting, load) for load in BOUNDS)) for setting in SETTINGS]
    return markdown_table([('ms an iteration', *BOUNDS), *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--iterations', type=int, default=60, help='of each run')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/contention'))
    args = parser.parse_args()
    if args.iterations < 2 * LOGGED or args.rounds < 1 or args.threads < 1:
        parser.error(f'expected at least {2 * LOGGED} --iterations, one of --rounds and one of --threads')
    folder = args.work_dir.absolute()
    data = make_digit_scenes(
        folder / f'digits_{args.iterations}',
        num_classification=(BATCH * args.iterations, 10),
        num_scenes=(1, 1),
        log=lambda line: None,
    )
    os.environ['VITPLUG_DIGITS'] = str(data)
    times = measure(folder, args.rounds, args.threads)
    print(f'\n{args.iterations} iterations, {args.rounds} rounds, {args.threads} threads\n\n{table(times)}\n')
    missed = [load for load, bound in BOUNDS.items() if ratio(times, OURS, load) > bound]
    print(f'FAILED: {OURS} {" and ".join(missed)}' if missed else 'passed')
    return int(bool(missed))


if __name__ == '__main__':
    sys.exit(main())
