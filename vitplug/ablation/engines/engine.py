"""What the controller of a grid asks of an engine.

All that matters lies in the folders of the cells, which workers (:mod:`vitplug.ablation.worker`) write: an engine only
starts them and says how they ended. A worker that is started again goes on from the cell's checkpoint, so an engine may
move it to another machine, or requeue it by itself, at any time.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol

from vitplug.errors.stops import Interrupted, PeerLost, WorkerDied

# Exit statuses after which a cell goes on by itself; negative ones, of a signal, as well.
GOES_ON = (Interrupted.status, PeerLost.status, WorkerDied.status)
LOST = -1
"""Status of a job that is gone without one, say with its node."""


class Job(Protocol):
    """A worker that has been started, or waits in a queue."""

    def poll(self) -> int | None:
        """The exit status of the worker, negative for a signal; None while it runs or waits."""

    def stop(self) -> None:
        """Asks the worker to save and end; returns at once."""


class Engine(Protocol):
    """Starts workers.

    Attributes:
        slots: How many jobs the controller may have at a time.
    """

    slots: int

    def submit(self, folder: Path) -> Job:
        """Starts the worker of a cell, or puts it into a queue.

        Raises:
            OSError: If it cannot be started.
        """

    def attach(self, folder: Path) -> Job | None:
        """The job of a cell that an earlier controller left running; None where jobs end with their controller."""

    def close(self) -> None:
        """Ends what the engine itself has started, after the last job."""


def worker_command(folder: Path, options: Sequence[str] = (), launcher: Sequence[str] = ()) -> list[str]:
    """The command line of a worker.

    Args:
        folder: Folder of the cell.
        options: Options of :mod:`vitplug.ablation.worker`.
        launcher: Launches it, such as ``torchrun``.
    """
    return [*launcher, *module_command('vitplug.ablation.worker'), str(folder), *options]


def module_command(name: str) -> list[str]:
    """Runs a module as ``python -m`` does, but imports nothing from the current folder, which may have a `json.py`."""
    root = str(Path(__file__).resolve().parents[3])
    code = f'import sys; sys.path[0] = {root!r}; import runpy; runpy.run_module({name!r}, None, "__main__", True)'
    return [sys.executable, '-c', code]


def goes_on(status: int) -> bool:
    """Whether a cell that ended with a status goes on by itself, from its checkpoint."""
    return status < 0 or status in GOES_ON


def import_extra(option: str, package: str, requirement: str) -> ModuleType:
    """The package of an engine.

    Raises:
        ModuleNotFoundError: With the command that installs it.
    """
    try:
        return import_module(package.lower())
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{option} needs {package}, which is not installed: pip install {requirement!r}', name=error.name
        ) from error
