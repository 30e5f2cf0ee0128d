"""Trains cells here, several at a time, or on a Slurm cluster by submitit."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from .cells import DONE, FAILED, OUTPUT, Cell

SECONDS = 0.5  # between two looks at the running trainings


class Running(Protocol):
    """A training that has been started."""

    def poll(self) -> int | None:
        """The exit status; None while it runs."""

    def stop(self) -> None:
        """Asks it to save and to end."""


class Engine(Protocol):
    """Where trainings run."""

    def start(self, cell: Cell, slot: int) -> Running:
        """Starts the training of a cell, which goes on from its last checkpoint.

        Args:
            cell: The cell.
            slot: Its number among those that run at the same time, from 0 on.
        """


class Local:
    """Processes of this machine; accelerators are dealt out in turn.

    Args:
        lock: The file that says that the folder is in use. Trainings inherit it: while one of them lives, another
            ablation of the folder is refused, also if this process was killed.
    """

    def __init__(self, lock: int):
        import torch

        self.lock, self.devices = lock, torch.cuda.device_count()

    def start(self, cell: Cell, slot: int) -> Running:
        visible = {'CUDA_VISIBLE_DEVICES': str(slot % self.devices)} if self.devices > 1 else {}
        with open(cell.folder / OUTPUT, 'ab') as output:
            return LocalRun(
                cell.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[self.lock],
                env=os.environ | visible,
            )  # fmt: skip


class LocalRun(subprocess.Popen):
    def stop(self) -> None:
        if self.poll() is None:
            self.send_signal(signal.SIGTERM)


class Slurm:
    """Jobs of a Slurm cluster, one for each cell. A job that meets its time limit is queued again.

    Args:
        folder: Where submitit keeps its files; all machines see it.
        settings: Parameters of ``submitit.AutoExecutor``, such as ``slurm_partition``, ``timeout_min`` and
            ``gpus_per_node``.
        cluster: For tests: ``'local'`` runs jobs as processes of this machine.

    Raises:
        ImportError: If submitit is not installed.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], cluster: str = 'slurm'):
        try:
            import submitit
        except ImportError as error:
            raise ImportError("--slurm needs submitit: pip install 'vitplug[slurm]'") from error
        self.executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        self.executor.update_parameters(**{'name': 'vitplug', **settings})

    def start(self, cell: Cell, slot: int) -> Running:
        return SlurmRun(self.executor.submit(Training(cell.command, cell.folder / OUTPUT)), cell)


class SlurmRun:
    """A job; its number is noted in the folder of the cell."""

    def __init__(self, job: Any, cell: Cell):
        self.job = job
        (cell.folder / 'job').write_text(f'{job.job_id}\n')

    def poll(self) -> int | None:
        return None if not self.job.done() else int(self.job.exception() is not None)

    def stop(self) -> None:
        self.job.cancel()


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


def train(cells: Sequence[Cell], engine: Engine, jobs: int, told=print) -> None:
    """Trains the cells that are not done, some at a time. Those that fail are noted and the others go on.

    However it ends, running trainings are asked to save and are waited for.
    """
    waiting, running = [cell for cell in cells if not cell.is_done], {}
    number = len(waiting)
    try:
        while waiting or running:
            free = [slot for slot in range(jobs) if slot not in running]
            for slot, cell in zip(free, waiting[: len(free)], strict=False):
                (cell.folder / FAILED).unlink(missing_ok=True)
                running[slot] = (cell, engine.start(cell, slot))
            del waiting[: len(free)]
            for slot, (cell, run) in [*running.items()]:
                if (status := run.poll()) is not None:
                    del running[slot]
                    conclude(cell, status)
                    left = f'{number - len(waiting) - len(running)} of {number}'
                    told(f'{left}: {cell}: {"done" if not status else cell.error}')
            time.sleep(SECONDS)
    finally:
        for _, run in running.values():
            run.stop()
        while any(run.poll() is None for _, run in running.values()):
            time.sleep(SECONDS)


def conclude(cell: Cell, status: int) -> None:
    """Notes how a training ended."""
    if status == 0:
        (cell.folder / DONE).touch()
        return
    output = cell.folder / OUTPUT
    lines = output.read_text(errors='replace').split('\n') if output.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), 'no output')
    (cell.folder / FAILED).write_text(f'{last} (exit status {status}, see {output})\n', encoding='utf-8')


@contextmanager
def used_alone(folder: Path) -> Iterator[int]:
    """Marks a folder as in use, for this process and the trainings that it starts; gives the open file.

    Raises:
        ValueError: If another ablation uses it, or trainings of one still run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / '.lock', os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield lock
    except BlockingIOError as error:
        raise ValueError(
            f'--out {folder}: another ablation uses it, or trainings of one still run: wait, or end them'
        ) from error
    finally:
        os.close(lock)
