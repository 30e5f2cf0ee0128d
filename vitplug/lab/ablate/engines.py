"""Trains cells on this machine, or on a Slurm cluster by submitit, some at a time."""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import torch

from .cells import DONE, OUTPUT, Cell


class Training:
    """The training of a cell as a process of its own; submitit calls it on a node.

    Raises:
        RuntimeError: If it fails.
    """

    def __init__(self, cell: Cell):
        self.command, self.output = cell.command, cell.folder / OUTPUT
        self.process: subprocess.Popen | None = None

    def __call__(self, **environment: str) -> None:
        with open(self.output, 'ab') as output:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ | environment
            )
        if status := self.process.wait():
            raise RuntimeError(f'exit status {status}')

    def stop(self) -> None:
        """Asks the process to save and to end."""
        if self.process:
            self.process.terminate()

    def checkpoint(self):
        """Called by submitit at a time limit or a preemption: the training is queued again."""
        from submitit.helpers import DelayedSubmission

        self.process = None
        return DelayedSubmission(self)


def train(cells: Sequence[Cell], jobs: int, told: Callable[[str], None] = print, executor: Any = None) -> None:
    """Trains the cells that are not done, some at a time. Where one fails, the others go on.

    However it ends, running trainings are asked to save and waited for.

    Args:
        cells: The cells.
        jobs: How many at a time; several accelerators of this machine are dealt out in turn.
        told: Called with a line for each cell.
        executor: One of submitit's, for trainings on a cluster; None for this machine.
    """
    stops: list[Callable[[], None]] = []
    devices = torch.cuda.device_count()

    def run(cell: Cell) -> None:
        training = Training(cell)
        if executor:
            job = executor.submit(training)
            stops.append(job.cancel)
            return job.result()
        stops.append(training.stop)
        slot = int(threading.current_thread().name.rpartition('_')[2])  # the pool numbers its threads
        training(**({'CUDA_VISIBLE_DEVICES': str(slot % devices)} if devices > 1 else {}))

    waiting = [cell for cell in cells if not cell.is_done]
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(run, cell): cell for cell in waiting}
        try:
            for number, future in enumerate(as_completed(futures), 1):
                cell, error = futures[future], future.exception()
                if error is None:
                    (cell.folder / DONE).touch()
                reason = str(error).strip().rpartition('\n')[2]  # submitit's errors have a traceback
                state = f'{cell.last_line} ({reason}, see {cell.folder / OUTPUT})' if error else 'done'
                told(f'{number} of {len(waiting)}: {cell}: {state}')
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for stop in stops:
                stop()
            raise
