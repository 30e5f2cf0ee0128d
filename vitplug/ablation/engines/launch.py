"""What a cluster runs on the nodes of a cell: the worker, or one torchrun per node, watched until it ends."""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitplug.errors.stops import Interrupted
from vitplug.files.atomic import check_record_file

from ..cells import OUTPUT
from .engine import LOST, module_command, worker_command

LOOK = 0.2
"""Seconds between two looks at a worker."""


@dataclass(frozen=True)
class Share:
    """What each cell gets of a cluster.

    Attributes:
        nodes: Number of nodes.
        gpus: Accelerators on each node, with one process each; 0 for one process without any.
        cpus: Cores on each node; None for what the cluster gives by default.

    Raises:
        ValueError: If a number is too small.
    """

    nodes: int = 1
    gpus: int = 0
    cpus: int | None = None

    def __post_init__(self):
        for name, least in (('nodes', 1), ('gpus', 0), ('cpus', 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f'--{name} {value}: expected at least {least}')

    @property
    def is_distributed(self) -> bool:
        """Whether a cell has several processes."""
        return self.nodes > 1 or self.gpus > 1


def node_command(
    folder: Path, share: Share, options: Sequence[str], status: Path, node: int = 0, host: str = '', port: int = 0
) -> list[str]:
    """The command line of one node of a cell.

    Args:
        folder: Folder of the cell.
        share: What the cell gets.
        options: Options of the worker.
        status: File for the exit status of the first process, which torchrun does not pass on.
        node: Number of this node.
        host: Name of the first node.
        port: Free port of the first node.
    """
    if not share.is_distributed:
        return worker_command(folder, options)
    meeting = ['--node-rank', str(node), '--master-addr', host, '--master-port', str(port)]
    torchrun = [*module_command('torch.distributed.run'), '--no-python', '--nnodes', str(share.nodes)]
    torchrun += ['--nproc-per-node', str(max(1, share.gpus)), *(meeting if share.nodes > 1 else ['--standalone'])]
    return worker_command(folder, [*options, '--launcher', 'pytorch', '--status', str(status)], torchrun)


def run_worker(
    command: Sequence[str], folder: Path, status: Path, asked: Callable[[], bool], cwd: str | None = None
) -> int:
    """Runs a node's command to its end; asks it to save and end as soon as `asked` says so.

    Args:
        command: The command of :func:`node_command`.
        folder: Folder of the cell, to whose output the command's is added.
        status: The file that the command was given.
        asked: Whether the worker shall end.
        cwd: The controller's current folder, where paths of configs begin; None if this process is in it.

    Returns:
        The exit status of the worker; 75 if it was asked to end before it began.
    """
    if asked():
        return Interrupted.status
    status.unlink(missing_ok=True)
    check_record_file(folder / OUTPUT)
    with open(folder / OUTPUT, 'ab') as output:
        # Slurm sends SIGUSR2 to all processes of a job, and it would end the worker unsaved: it is for this one alone.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, cwd=cwd)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    has_asked = False
    while process.poll() is None:
        if asked() and not has_asked:
            process.send_signal(signal.SIGTERM)
            has_asked = True
        time.sleep(LOOK)
    if '--status' not in command or process.returncode == 0:
        return process.returncode
    return int(status.read_text(encoding='utf-8')) if status.is_file() else LOST
