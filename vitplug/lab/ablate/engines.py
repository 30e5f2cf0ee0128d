"""Trains cells on this machine, or on a Slurm cluster by submitit, some at a time."""

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from vitplug.lab.cells import DONE, OUTPUT, Cell


def call(
    command: Sequence[str],
    output: Path,
    environment: Mapping[str, str] | None = None,
    began: Callable[[subprocess.Popen], Any] = lambda process: None,
) -> None:
    """Calls a command in a process of its own, which ``began`` gets; submitit does so on a node.

    Raises:
        RuntimeError: If it fails.
    """
    with open(output, 'ab') as file:
        told = dict(stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        process = subprocess.Popen(command, env=os.environ | (environment or {}), **told)
    began(process)
    if status := process.wait():
        raise RuntimeError(f'exit status {status}')


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
    every = ','.join(map(str, range(torch.cuda.device_count())))
    devices = (os.environ.get('CUDA_VISIBLE_DEVICES') or every).split(',')

    def run(cell: Cell) -> None:
        training = cell.command, cell.folder / OUTPUT
        if executor:
            job = executor.submit(call, *training)
            stops.append(job.cancel)
            return job.result()
        slot = int(threading.current_thread().name.rpartition('_')[2])  # the pool numbers its threads
        environment = {'CUDA_VISIBLE_DEVICES': devices[slot % len(devices)]} if len(devices) > 1 else {}
        call(*training, environment, lambda process: stops.append(process.terminate))

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
