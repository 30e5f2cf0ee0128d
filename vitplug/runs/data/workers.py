"""Workers of data loaders that die: the reason, and the sample that was being read."""

import multiprocessing
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.data import get_worker_info

from vitplug.errors.stops import BadSample, TrainingStopped, WorkerDied

# torch's error, which it raises in the main process at any moment.
DEATH = re.compile(r'DataLoader worker \(pid(?:\(s\))? (\d+)[^)]*\)(?: is killed by signal: (\w[\w ]*))?')
SIGNALS = {signal.strsignal(number): number for number in signal.Signals}
# Signals for faults of the process itself, such as C code on a broken file.
CRASHES = {signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
ADVICE = {signal.SIGKILL: 'most likely memory ran out: set fewer workers (num_workers) or smaller batches'}


class InHand:
    """The sample that each worker of a loader is making, in shared memory, where it outlives the worker.

    Args:
        num_workers: Number of workers of the loader.
    """

    def __init__(self, num_workers: int):
        self.slots = multiprocessing.Array('q', 2 * num_workers, lock=False)  # process id and index, by worker

    @contextmanager
    def holding(self, index: int) -> Iterator[None]:
        """Notes a sample while a worker makes it; does nothing in the main process."""
        worker = get_worker_info()
        if worker is None:
            yield
            return
        slot = 2 * worker.id
        self.slots[slot : slot + 2] = [os.getpid(), index]
        try:
            yield
        finally:
            self.slots[slot] = 0

    def index_of(self, pid: int) -> int | None:
        """The sample that a worker was making, None if it was between two."""
        return dict(zip(self.slots[::2], self.slots[1::2], strict=True)).get(pid)


@contextmanager
def deaths_of_workers(runner) -> Iterator[None]:
    """Turns torch's error for a dead worker into one with the sample in it.

    A bus error is left as it is: it says that shared memory is full.

    Raises:
        BadSample: if the worker crashed over a sample; names it.
        WorkerDied: if it died of something else.
    """
    try:
        yield
    except RuntimeError as error:
        # Where torch was waiting for a batch, it hides the error with the signal behind one without.
        death = DEATH.search(str(error.__cause__)) or DEATH.search(str(error))
        number = death and SIGNALS.get(death[2])
        if death is None or number == signal.SIGBUS:
            raise
        raise explained(int(death[1]), number, _held(runner, int(death[1]))) from error


def explained(pid: int, number: signal.Signals | None, path: str | None) -> TrainingStopped:
    """The error for a dead worker.

    Args:
        pid: Its process id.
        number: The signal that killed it, None if it is not known.
        path: The image that it had in hand, None if it had none.
    """
    how = f'died ({number.name})' if number else 'died'
    if path and number in CRASHES:
        return BadSample(f'a worker of the data loader {how} of {path}: repair or remove this image or its annotations')
    where = f' while it read {path}' if path else ''
    advice = ADVICE.get(number, "look for the reason in the system's log (dmesg), or set num_workers=0 to see more")
    return WorkerDied(f'a worker of the data loader (process {pid}) {how}{where}: {advice}')


def _held(runner, pid: int) -> str | None:
    for loop in (runner._train_loop, runner._val_loop, runner._test_loop):
        dataset = getattr(getattr(loop, 'dataloader', None), 'dataset', None)
        path = dataset.held_by(pid) if hasattr(dataset, 'held_by') else None
        if path:
            return path
    return None
