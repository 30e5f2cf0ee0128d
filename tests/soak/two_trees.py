"""Times models of two trees of this repository in turn: what a change costs.

    git worktree add ../before HEAD~1
    python tests/soak/two_trees.py ../before [--cases deit-224 swin-512 ...] [--rounds 10] [--processes 4] [--threads 2]

Each tree has a process of its own that holds the model; the processes take turns, every other round in reverse order.
Where its memory lies makes a process faster or slower by up to a tenth for all its life, so new ones follow.
A turn is as short as a step allows, so that both trees meet the same noise of a shared machine. A ratio is that of one
round, this tree over the other; the table has its median and quartiles. Needs a quiet machine.
"""

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    'deit-224': ('deit', 224, 2),
    'deit-512': ('deit', 512, 1),
    'swin-512': ('swin', 512, 1),
}
PLAIN = 'plain'


class Worker:
    """A process of one tree that runs steps of one model when asked to."""

    def __init__(self, tree: Path, case: str, plug: str, mode: str, threads: int):
        environment = {**os.environ, 'PYTHONPATH': str(tree), 'OMP_NUM_THREADS': str(threads)}
        command = [sys.executable, __file__, str(tree), '--serve', case, plug, mode]
        self.process = subprocess.Popen(
            command, env=environment, cwd=tree, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.ask(2)  # warm-up

    def ask(self, steps: int) -> float:
        """Seconds a step takes, over some steps."""
        print(steps, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(case: str, plug: str, mode: str) -> None:
    """Runs steps for :class:`Worker`: reads how many, writes the seconds of one."""
    import logging
    import time

    import torch

    from vitplug.benchmark import models

    logging.disable(logging.WARNING)
    torch.set_num_threads(int(os.environ['OMP_NUM_THREADS']))
    torch.manual_seed(0)
    family, size, batch = CASES[case]
    plugs = models.PLUGS.get(plug, [])
    model = models.deit(size, plugs) if family == 'deit' else models.swin(plugs=plugs)
    step = models.MODES[mode](model, (batch, 3, size, size), 'cpu', torch.float32)
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            step()
        print(json.dumps((time.perf_counter() - begin) / int(line)), flush=True)


def ratios(other: Path, case: str, plug: str, mode: str, args: argparse.Namespace) -> tuple[list[float], float]:
    """This tree's time over the other's, round by round, and this tree's median in ms."""
    pairs = [times_of_pair(other, case, plug, mode, args.rounds, args.threads) for _ in range(args.processes)]
    times = [both for pair in pairs for both in pair]
    return [own / others for own, others in times], 1000 * median(own for own, _ in times)


def times_of_pair(other: Path, case: str, plug: str, mode: str, rounds: int, threads: int) -> list[tuple[float, float]]:
    """Seconds of a step of this tree and of the other, round by round, of two new processes."""
    workers = [Worker(tree, case, plug, mode, threads) for tree in (ROOT, other)]
    steps = max(1, round(0.3 / workers[0].ask(1)))
    times: list[tuple[float, float]] = []
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found = {index: workers[index].ask(steps) for index in order}
        times.append((found[0], found[1]))
    for worker in workers:
        worker.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('other', type=Path, help='another tree of this repository')
    parser.add_argument('--cases', nargs='+', choices=CASES, default=list(CASES))
    parser.add_argument('--plugs', nargs='+', help="names of the benchmark's plugs, and 'plain'; default: all")
    parser.add_argument('--modes', nargs='+', choices=('training', 'inference'), default=['training', 'inference'])
    parser.add_argument('--rounds', type=int, default=10, help='rounds of each pair of processes')
    parser.add_argument('--processes', type=int, default=4, help='pairs of processes, one after another')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--serve', nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(*args.serve)
        return
    from vitplug.benchmark.models import PLUGS

    print('| model | mode | plug | ms | this tree / other (quartiles) |\n|---|---|---|---:|---:|')
    for case, mode, plug in product(args.cases, args.modes, args.plugs or [PLAIN, *PLUGS]):
        found, own = ratios(args.other.resolve(), case, plug, mode, args)
        low, _, high = quantiles(found, n=4)
        print(f'| {case} | {mode} | {plug} | {own:.0f} | {median(found):.3f} ({low:.3f} to {high:.3f}) |', flush=True)


if __name__ == '__main__':
    main()
