"""Trains one cell of a grid in a process of its own: python -m vitplug.ablation.worker CELL [--launcher pytorch]

Ends as `tools/train.py` does, with its exit statuses, and goes on from the cell's checkpoint if there is one. Engines
start it; where they hold a pipe to its stdin (`--heed-parent`), it ends when they do: it saves and exits with 75.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vitplug import chatter, threads

WAITS = 120
"""Seconds that a worker waits for an earlier one of its cell, whose controller died, to save and end."""


def main(argv: list[str] | None = None) -> None:
    """Trains a cell."""
    parser = argparse.ArgumentParser(description='Train one cell of a grid.')
    parser.add_argument('cell', type=Path, help='folder of the cell')
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
    parser.add_argument('--unsafe-unpickle', action='store_true')
    parser.add_argument('--heed-parent', action='store_true', help='end when stdin is closed')
    parser.add_argument('--status', type=Path, help='file for the exit status of the first process')
    args = parser.parse_args(argv)
    with status_written(args.status, args.launcher):
        train(args)


def train(args: argparse.Namespace) -> None:
    """Trains the cell, unless it is done."""
    if args.heed_parent:
        threading.Thread(target=heed_parent, daemon=True).start()

    from vitplug.runs.training_commands import run_training

    from .records import DONE

    wait_for_earlier(args.cell, args.launcher)
    if (args.cell / DONE).is_file():
        return
    run_training(lambda: cell_config(args.cell, args.launcher), args.unsafe_unpickle)


@contextmanager
def status_written(path: Path | None, launcher: str) -> Iterator[None]:
    """Writes how the first process ends: torchrun itself ends with 1, whatever the status of its processes."""
    status = 1
    try:
        yield
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    finally:
        if path:
            from vitplug.runs.launch import is_first_process

            if is_first_process(launcher):
                path.write_text(str(status), encoding='utf-8')


def cell_config(folder: Path, launcher: str = 'none'):
    """The config of a cell with the hook that records it; goes on from its last checkpoint.

    Raises:
        ValueError or OSError: If a file of the cell or of its grid cannot be read.
    """
    from vitplug.config.parts import as_list
    from vitplug.config.reading import read_config
    from vitplug.runs.options import RunConfig, fit_workers
    from vitplug.runs.saving.folders import AUTO

    from .cells import CONFIG
    from .recorder import CellRecorder
    from .records import read_grid

    class CellConfig(RunConfig):
        """A config whose dumps are left out: `config.py` is there already."""

        def dump(self, file=None):
            return None if file else super().dump()

    grid = read_grid(folder.parents[1])
    cfg = CellConfig.of(read_config(str(folder / CONFIG)))
    fit_workers(cfg)
    recorder = dict(
        type=f'vitplug.{CellRecorder.__name__}', metric=grid.metric, greater_is_better=grid.greater_is_better
    )
    cfg.custom_hooks = [*as_list(cfg.get('custom_hooks')), recorder]
    cfg.launcher, cfg.work_dir, cfg.resume = launcher, str(folder), AUTO
    cfg.experiment_name = folder.name
    return cfg


def wait_for_earlier(folder: Path, launcher: str) -> None:
    """Waits until no other process trains the cell; the training itself refuses if one still does."""
    from vitplug.runs.launch import is_first_process
    from vitplug.runs.saving.lock import only_training

    until = time.monotonic() + WAITS
    while is_first_process(launcher) and time.monotonic() < until:
        try:
            with only_training([folder.resolve()]):
                return
        except BlockingIOError:
            time.sleep(1)


def heed_parent() -> None:
    """Ends this process as on SIGTERM once the controller, which holds the other end of stdin, is gone."""
    while os.read(0, 1):
        pass
    print('the controller has ended, so this cell saves and ends as well', file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == '__main__':
    threads.configure()  # before torch is loaded
    chatter.filter_lines()
    main()
