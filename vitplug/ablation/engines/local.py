"""Cells in processes of this machine, with a share of its cores and accelerators each."""

import os
import signal
import subprocess
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from vitplug.files.atomic import check_record_file
from vitplug.threads import cores, thread_variables

from ..cells import OUTPUT
from .engine import Job, worker_command

VISIBLE = 'CUDA_VISIBLE_DEVICES'


class LocalEngine:
    """Some jobs at a time, each with an equal share of the cores; accelerators are dealt out in turn.

    A job ends with its controller, however that ends: it sees its stdin close, saves and exits with status 75.

    Args:
        jobs: Number of jobs at a time; None for one per accelerator, or one per core where there is none.
        gpus: Names of the accelerators, as ``CUDA_VISIBLE_DEVICES`` has them.
        options: Options of the worker.

    Raises:
        ValueError: If ``jobs`` is less than 1.
    """

    def __init__(self, jobs: int | None = None, gpus: Sequence[str] = (), options: Sequence[str] = ()):
        if jobs is not None and jobs < 1:
            raise ValueError(f'--jobs {jobs}: expected at least 1')
        self.slots = jobs or len(gpus) or cores()
        self.gpus, self.options = gpus, options
        self.running: dict[int, LocalJob] = {}

    def submit(self, folder: Path) -> 'LocalJob':
        """Starts the worker of a cell in a free slot; its output is added to the cell's."""
        self.running = {slot: job for slot, job in self.running.items() if job.poll() is None}
        slot = next(slot for slot in range(self.slots) if slot not in self.running)
        self.running[slot] = LocalJob(folder, self.variables(slot), self.options)
        return self.running[slot]

    def variables(self, slot: int) -> dict[str, str]:
        """The variables that give a slot its share of cores and its accelerator."""
        devices = {VISIBLE: self.gpus[slot % len(self.gpus)]} if self.gpus else {}
        return thread_variables(max(1, cores() // self.slots)) | devices

    def attach(self, folder: Path) -> Job | None:
        """None: a job of an earlier controller ends by itself, and the next worker of its cell waits for that."""
        return None

    def close(self) -> None:
        """Nothing is left to be ended."""


class LocalJob:
    """A worker in a process and a session of its own: Ctrl-C in the terminal reaches the controller alone."""

    def __init__(self, folder: Path, variables: dict[str, str], options: Sequence[str]):
        check_record_file(folder / OUTPUT)
        with open(folder / OUTPUT, 'ab') as output:
            self.process = subprocess.Popen(
                worker_command(folder, [*options, '--heed-parent']),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | variables,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """The exit status."""
        return self.process.poll()

    def stop(self) -> None:
        """Sends SIGTERM, on which a training saves and ends."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


def visible_gpus() -> list[str]:
    """The accelerators that this process may use, as ``CUDA_VISIBLE_DEVICES`` has them."""
    chosen = os.environ.get(VISIBLE)
    if chosen is not None:
        names = (name.strip() for name in chosen.split(','))
        return [*takewhile(lambda name: name and name[0] != '-', names)]  # CUDA stops at the first wrong one, as -1
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]
