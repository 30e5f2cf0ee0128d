"""Trains cells here, several at a time, or on a Slurm cluster by submitit."""

import os
import queue
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from .cells import DONE, FAILED, OUTPUT, Cell


def train(
    cells: Sequence[Cell],
    jobs: int,
    told: Callable[[str], None] = print,
    slurm: tuple[Path, Mapping[str, Any]] | None = None,
    cluster: str = 'slurm',
) -> None:
    """Trains the cells that are not done, some at a time. Those that fail are noted and the others go on.

    However it ends, running trainings are asked to save; those of this machine are waited for.

    Args:
        cells: The cells.
        jobs: How many at a time.
        told: Called with a line for each cell.
        slurm: Where submitit keeps its files, and parameters of ``submitit.AutoExecutor``, such as ``slurm_partition``,
            ``timeout_min`` and ``gpus_per_node``; None for this machine.
        cluster: For tests: ``'local'`` runs submitit's jobs as processes of this machine.

    Raises:
        ImportError: If submitit is not installed.
    """
    waiting = [cell for cell in cells if not cell.is_done]
    for cell in waiting:
        (cell.folder / FAILED).unlink(missing_ok=True)
    ended = _by_submitit(waiting, jobs, *slurm, cluster) if slurm else _here(waiting, jobs)
    with closing(ended):
        for number, (cell, status) in enumerate(ended, 1):
            conclude(cell, status)
            told(f'{number} of {len(waiting)}: {cell}: {"done" if not status else cell.error}')


def _here(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, int]]:
    """Cells and their exit statuses as they end; accelerators are dealt out in turn."""
    slots: queue.SimpleQueue[int] = queue.SimpleQueue()
    for slot in range(jobs):
        slots.put(slot)
    running: set[subprocess.Popen] = set()

    def run(cell: Cell) -> int:
        slot, devices = slots.get(), torch.cuda.device_count()
        visible = {'CUDA_VISIBLE_DEVICES': str(slot % devices)} if devices > 1 else {}
        with open(cell.folder / OUTPUT, 'ab') as output:
            process = subprocess.Popen(
                cell.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ | visible
            )
            running.add(process)
            status = process.wait()
        running.discard(process)
        slots.put(slot)
        return status

    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(run, cell): cell for cell in cells}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*running]:
                process.terminate()
            raise


def _by_submitit(
    cells: Sequence[Cell], jobs: int, folder: Path, settings: Mapping[str, Any], cluster: str
) -> Iterator[tuple[Cell, int]]:
    """Cells and their exit statuses as they end; a job that meets its time limit is queued again."""
    try:
        import submitit
    except ImportError as error:
        raise ImportError("--slurm needs submitit: pip install 'vitplug[slurm]'") from error
    executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    executor.update_parameters(**{'name': 'vitplug', 'slurm_array_parallelism': jobs, **settings})
    with executor.batch():
        submitted = [executor.submit(Training(cell.command, cell.folder / OUTPUT)) for cell in cells]
    try:
        for cell, job in zip(cells, submitted, strict=True):
            job.wait()
            yield cell, int(job.exception() is not None)
    except BaseException:
        for job in submitted:
            job.cancel()
        raise


class Training:
    """What a job runs: the training of a cell, queued again by submitit after a time limit or a preemption."""

    def __init__(self, command: Sequence[str], output: Path):
        self.command, self.output = command, output

    def __call__(self) -> None:
        with open(self.output, 'ab') as output:
            subprocess.run(self.command, stdout=output, stderr=output, check=True)

    def checkpoint(self):
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def conclude(cell: Cell, status: int) -> None:
    """Notes how a training ended."""
    if status == 0:
        (cell.folder / DONE).touch()
        return
    output = cell.folder / OUTPUT
    lines = output.read_text(errors='replace').split('\n') if output.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), 'no output')
    (cell.folder / FAILED).write_text(f'{last} (exit status {status}, see {output})\n', encoding='utf-8')
