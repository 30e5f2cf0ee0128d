"""Kills random processes of trainings under torchrun and checks that they end as if nobody had.

    python tests/soak/kill_under_torchrun.py [--kills 20] [--per-training 2] [--processes 2] [--work-dir DIR]

A small digits classification is trained once undisturbed. Then, until there are enough kills, it is trained under
`torchrun --max-restarts`, with no other word; at random moments a random process below torchrun, a training or a worker
of its loader, is killed with SIGKILL. The last checkpoints must agree bit for bit, and the metrics of every validation.
A line per training goes to `trainings.jsonl`, from which a second call goes on; the exit status is 1 if any training
ended otherwise.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak.kill_and_resume import CONFIGS, ROOT, SHARED, TASKS, WORKERS, differences, last_checkpoint, metrics

from vitplug.datasets.digit_scenes import make_digit_scenes

COMPARED = ('state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers')
RECORDS = 'trainings.jsonl'
# A training that hangs after a kill is a fault: so many looks at it, half a second apart. Seconds would also count
# while this machine, and this program with it, is suspended.
LIMIT = 1200
# Most steps, validations and checkpoints between two kills; an undisturbed training has 14.
MOST_LINES = 9


def start(work_dir: Path, processes: int, restarts: int) -> subprocess.Popen:
    """Starts torchrun; the output of all processes goes to `train.log` in the work dir."""
    config, options = TASKS['classification']
    work_dir.mkdir(parents=True)
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone']
    command += [f'--nproc-per-node={processes}', f'--max-restarts={restarts}', str(ROOT / 'tools' / 'train.py')]
    command += [str(CONFIGS / config), '--work-dir', str(work_dir), '--launcher', 'pytorch']
    command += ['--cfg-options', *options, *WORKERS, *SHARED]
    with (work_dir / 'train.log').open('w') as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=work_dir)


def kill_below(torchrun: subprocess.Popen, draw: random.Random) -> str | None:
    """Kills a training, or one time in four a worker of its loader; says which, or None if there is none."""
    wants_worker = draw.random() < 0.25
    below = psutil.Process(torchrun.pid).children(recursive=True) if torchrun.poll() is None else []
    kinds = {process: process.ppid() != torchrun.pid for process in below if process.is_running()}
    found = [process for process, is_worker in kinds.items() if is_worker == wants_worker]
    if not found:
        return None
    draw.choice(found).kill()
    return 'loader worker' if wants_worker else 'training'


def progress(work_dir: Path) -> int:
    """How many steps, validations and checkpoints the log has: seconds mean little on a shared machine."""
    return len(re.findall(r'Epoch\((?:train|val)\)|Saving checkpoint', (work_dir / 'train.log').read_text()))


def disturb(torchrun: subprocess.Popen, work_dir: Path, kills: int, draw: random.Random) -> Iterator[str]:
    """Kills so many times while torchrun runs, each some progress after the kill before; says what was killed."""
    done = 0
    while done < kills:
        until = progress(work_dir) + draw.randrange(MOST_LINES)
        while torchrun.poll() is None and progress(work_dir) < until:
            time.sleep(0.05)
        time.sleep(draw.uniform(0, 2))
        if torchrun.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            killed = kill_below(torchrun, draw)
            if killed:
                done += 1
                yield killed


def wait(torchrun: subprocess.Popen) -> int | str:
    """The exit status, or 'hangs'."""
    for _ in range(LIMIT):
        if torchrun.poll() is not None:
            return torchrun.returncode
        time.sleep(0.5)
    return 'hangs'


def train(work_dir: Path, processes: int, kills: int, draw: random.Random) -> dict:
    """Trains with kills; gives its exit status, its time in seconds and what was killed."""
    shutil.rmtree(work_dir, ignore_errors=True)
    begin = time.monotonic()
    torchrun = start(work_dir, processes, kills)
    killed = []
    try:
        for one in disturb(torchrun, work_dir, kills, draw):
            killed.append(one)
        status = wait(torchrun)
    finally:
        torchrun.terminate()
        torchrun.wait()
    return dict(killed=killed, seconds=round(time.monotonic() - begin, 1), status=status)


def compare(work_dir: Path, reference: Path) -> list[str]:
    """What differs between two trainings."""
    ours, theirs = last_checkpoint(work_dir), last_checkpoint(reference)
    wrong = [line for name in COMPARED for line in differences(ours.get(name), theirs.get(name), name)]
    return wrong + (['metrics'] if metrics(work_dir) != metrics(reference) else [])


def run(folder: Path, kills: int, per_training: int, processes: int, seed: int) -> list[dict]:
    """Trains until there are so many kills; goes on from the records in the folder."""
    records = folder / RECORDS
    done = [json.loads(line) for line in records.read_text().splitlines()] if records.is_file() else []
    data = make_digit_scenes(folder / 'digits', num_classification=(100, 20), num_scenes=(1, 1), overwrite=True)
    os.environ['VITPLUG_DIGITS'] = str(data)
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    reference = folder / 'undisturbed'
    if not done:
        undisturbed = train(reference, processes, 0, random.Random())
        print(f'undisturbed: {json.dumps(undisturbed)}', flush=True)
        if undisturbed['status']:
            raise RuntimeError(f'the undisturbed training failed: {reference / "train.log"}')
    while sum(len(one['killed']) for one in done) < kills:
        draw = random.Random(f'{seed} {len(done)}')
        work_dir = folder / 'killed'
        result = train(work_dir, processes, per_training, draw)
        differs = ['no end'] if result['status'] else compare(work_dir, reference)
        done.append(result | dict(equal=not differs, differences=differs[:5]))
        if differs:
            work_dir.rename(folder / f'differs{len(done)}')
        print(f'{sum(len(one["killed"]) for one in done):3}/{kills} {json.dumps(done[-1])}', flush=True)
        with records.open('a') as file:
            file.write(json.dumps(done[-1]) + '\n')
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--kills', type=int, default=20)
    parser.add_argument('--per-training', type=int, default=2, help='kills of each training')
    parser.add_argument('--processes', type=int, default=2)
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/kill_under_torchrun'))
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    folder = args.work_dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    done = run(folder, args.kills, args.per_training, args.processes, args.seed)
    equal, kills = sum(one['equal'] for one in done), sum(len(one['killed']) for one in done)
    print(f'{equal} of {len(done)} trainings with {kills} kills ended bit-equal')
    return int(equal < len(done))


if __name__ == '__main__':
    sys.exit(main())
