"""Cells as jobs of a Slurm cluster, submitted through submitit.

A job outlives its controller: a new controller finds it in the queue by its comment, the folder of its cell.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitplug.errors.stops import Interrupted
from vitplug.runs.launch import first_host

from .engine import LOST, import_extra
from .launch import Share, node_command, run_worker

FOLDER = 'slurm'
"""Folder in that of a cell: submitit's files, and how its jobs ended."""
SLOTS = 100
"""Jobs in the queue at a time, unless chosen."""
DEFAULT_MINUTES = 60
SAVING_SECONDS = 120
"""How long before the time limit a job is asked to save."""
LOOK_SECONDS = 5
"""Seconds between two questions to Slurm, whose controller serves all users."""
REQUEUE_SECONDS = 600
ENDED = {'BOOT_FAIL', 'CANCELLED', 'COMPLETED', 'DEADLINE', 'FAILED', 'NODE_FAIL', 'OUT_OF_MEMORY', 'TIMEOUT'}
FORMAT = '%i|%T|%k'  # id, state, comment


class SlurmEngine:
    """Puts each cell into the queue as a job, with one torchrun per node where it has several processes.

    Args:
        share: What each cell gets.
        jobs: Number of jobs in the queue at a time.
        partition: Name of the partition; None for the cluster's default.
        minutes: Time limit of a job, after which it is requeued and goes on.
        options: Options of the worker.

    Raises:
        ModuleNotFoundError: If submitit is not installed.
        ValueError: If ``jobs`` is less than 1, or this machine has no Slurm.
    """

    def __init__(
        self,
        share: Share,
        jobs: int | None = None,
        partition: str | None = None,
        minutes: int = DEFAULT_MINUTES,
        options: Sequence[str] = (),
    ):
        self.submitit, self.cell = import_extra('--engine slurm', 'submitit', 'submitit>=1.5'), CellOnNodes
        if jobs is not None and jobs < 1:
            raise ValueError(f'--jobs {jobs}: expected at least 1')
        if self.submitit.SlurmExecutor.affinity() < 0:
            raise ValueError(
                '--engine slurm: this machine has no srun: start the command on a login node of the cluster'
            )
        self.share, self.slots, self.options = share, jobs or SLOTS, options
        self.partition, self.minutes = partition, minutes
        self.queue = Queue()

    def parameters(self, folder: Path) -> dict:
        """submitit's parameters of a cell's job: one task, the launcher, on each node."""
        share = self.share
        chosen = dict(partition=self.partition, cpus_per_task=share.cpus, gpus_per_node=share.gpus or None)
        return {name: value for name, value in chosen.items() if value is not None} | dict(
            job_name=f'vitplug-{folder.name}',
            comment=str(folder.resolve()),
            nodes=share.nodes,
            ntasks_per_node=1,
            time=self.minutes,
            # A short job is asked to save in its last half.
            signal_delay_s=min(SAVING_SECONDS, self.minutes * 30),
            stderr_to_stdout=True,
            additional_parameters=dict(requeue=True),
        )

    def executor(self, folder: Path):
        """submitit's executor of a cell."""
        executor = self.submitit.SlurmExecutor(folder.resolve() / FOLDER)
        executor.update_parameters(**self.parameters(folder))
        return executor

    def submit(self, folder: Path) -> 'SlurmJob':
        """Puts a cell into the queue.

        Raises:
            OSError: If Slurm refuses it.
        """
        try:
            job = self.executor(folder).submit(self.cell(folder.resolve(), self.share, tuple(self.options)))
        except self.submitit.core.utils.FailedJobError as error:
            raise OSError(f'Slurm refused the job: {" ".join(str(error).split())}') from error
        self.queue.expect(job.job_id)
        return SlurmJob(job.job_id, folder, self.queue)

    def attach(self, folder: Path) -> 'SlurmJob | None':
        """The job of a cell that waits or runs already.

        Raises:
            OSError: If Slurm does not answer: the cell might be submitted twice.
        """
        number = self.queue.find(str(folder.resolve()))
        return number and SlurmJob(number, folder, self.queue)

    def close(self) -> None:
        """Nothing is left to be ended."""


class Queue:
    """The jobs of this user as ``squeue`` lists them, asked for once for all cells."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.clock, self.at, self.jobs, self.doubted = clock, None, {}, False

    def look(self) -> dict[str, str]:
        """Comments of the jobs that have not ended, by id; at most :data:`LOOK_SECONDS` old.

        Raises:
            OSError: If Slurm does not answer.
        """
        if self.at is None or self.clock() - self.at >= LOOK_SECONDS:
            command = ['squeue', '--me', '--noheader', '--states=all', f'--format={FORMAT}']
            answer = subprocess.run(command, capture_output=True, text=True)
            if answer.returncode:
                raise OSError(f'squeue: {" ".join(answer.stderr.split())}')
            # Sites print banners around the rows.
            rows = re.findall(r'^(\d\w*)\|([A-Z_]+)\|(.*)$', answer.stdout, re.MULTILINE)
            # Nothing at all is no answer yet where jobs are known: ended ones are listed for minutes.
            self.doubted = not rows and bool(self.jobs) and not self.doubted
            if not self.doubted:
                self.jobs = {number: comment for number, state, comment in rows if state not in ENDED}
            self.at = self.clock()
        return self.jobs

    def expect(self, number: str) -> None:
        """Takes in a job that has just been submitted."""
        self.jobs[number] = ''

    def find(self, comment: str) -> str | None:
        """The id of the job with a comment."""
        return next((number for number, found in self.look().items() if found == comment), None)


class SlurmJob:
    """A job in the queue.

    Args:
        number: Slurm's id of it.
        folder: Folder of the cell.
        queue: The queue.
    """

    def __init__(self, number: str, folder: Path, queue: Queue):
        self.number, self.queue, self.stopped = number, queue, False
        self.status, self.stopping = ending_files(folder, number)

    def poll(self) -> int | None:
        """The exit status that the job has left; :data:`LOST` if it is gone without one."""
        try:
            is_there = self.number in self.queue.look()
        except OSError:  # Slurm does not answer: what it knows will be known later
            is_there = True
        # In this order: the status is written before the job is gone.
        if self.status.is_file():
            return int(self.status.read_text(encoding='utf-8'))
        if is_there:
            return None
        return Interrupted.status if self.stopped else LOST

    def stop(self) -> None:
        """Takes it out of the queue, or asks its worker to save and end, once."""
        if self.stopped:
            return
        self.stopped = True
        self.stopping.touch()
        for choice in ('--state=PENDING', '--signal=USR2'):
            subprocess.run(['scancel', choice, self.number], capture_output=True)


def ending_files(folder: Path, number: str) -> tuple[Path, Path]:
    """The file with a job's exit status, and the one that says that it shall not be requeued."""
    return folder / FOLDER / f'{number}.status', folder / FOLDER / f'{number}.stop'


@dataclass(frozen=True)
class CellOnNodes:
    """What submitit calls on each node: runs the worker, and requeues the job if it has saved and may go on.

    A job is asked to save by SIGUSR2 before its time limit, and by SIGTERM when it is preempted, which reaches the
    worker, too. submitit's own handler requeues at once, without waiting until the worker has saved.

    Attributes:
        folder: Folder of the cell.
        share: What the cell gets.
        options: Options of the worker.
    """

    folder: Path
    share: Share
    options: tuple[str, ...]

    def __call__(self) -> None:
        """Runs to the end of the worker."""
        asked = []
        for number in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, lambda *_: asked.append(True))
        job, node = os.environ['SLURM_JOB_ID'], int(os.environ.get('SLURM_NODEID', 0))
        status_file, stop_file = ending_files(self.folder, job)
        worker_status = status_file.with_suffix('.worker')
        command = self.command(job, node, worker_status)
        status = run_worker(command, self.folder, worker_status, lambda: bool(asked) or stop_file.is_file())
        if node:
            return  # the first node tells how the cell ended
        if status == Interrupted.status and not stop_file.is_file() and requeue(job):
            return
        temporary = status_file.with_suffix('.part')
        temporary.write_text(str(status), encoding='utf-8')
        os.replace(temporary, status_file)

    def command(self, job: str, node: int, status: Path) -> list[str]:
        """The command of a node."""
        # Jobs that share a node have ids apart.
        port = 20000 + int(job) % 20000
        host = first_host(os.environ.get('SLURM_JOB_NODELIST', ''))
        return node_command(self.folder, self.share, self.options, status, node, host, port)


def requeue(job: str) -> bool:
    """Puts this job back into the queue, which ends this process; False if Slurm does not.

    After a preemption Slurm may have done that itself: a second job of the cell must not be started then.
    """
    answer = subprocess.run(['scontrol', 'requeue', job], capture_output=True, text=True)
    if answer.returncode and not is_requeued(job):
        print(f'job {job} is not requeued: {answer.stderr.strip()}', file=sys.stderr, flush=True)
        return False
    time.sleep(REQUEUE_SECONDS)
    return True


def is_requeued(job: str) -> bool:
    """Whether Slurm has put this job back into the queue since it began to run."""
    answer = subprocess.run(['scontrol', 'show', 'job', job], capture_output=True, text=True)
    found = re.search(r'\bRestarts=(\d+)', answer.stdout)
    return bool(found) and int(found[1]) > int(os.environ.get('SLURM_RESTART_COUNT', 0))
