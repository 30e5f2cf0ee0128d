"""Runs the cells of a grid on an engine until each is done or has failed."""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vitplug.errors.stops import BadSample, CheckpointNotRead, NonFiniteLoss, NotWritten
from vitplug.progress import StatusLine, spoken

from .cells import OUTPUT, Cell, begin_again, forget_failures, last_line, note_failure, remove_checkpoints
from .engines.engine import Engine, Job, goes_on

# A cell that ends this often in a row without a new checkpoint has failed.
ENDS_WITHOUT_PROGRESS = 3
INTERVAL = 0.5
"""Seconds between two looks at the jobs."""

# Ends that come again until data, checkpoint or settings are changed.
LASTING = (BadSample.status, CheckpointNotRead.status, NonFiniteLoss.status)
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Running:
    """A cell with its job.

    Attributes:
        cell: The cell.
        job: Its job.
        begin: When it was started.
        checkpoint: State of its checkpoint at that time.
        written: Bytes of its output at that time, of earlier attempts.
    """

    cell: Cell
    job: Job
    begin: float
    checkpoint: tuple | None
    written: int = 0

    @property
    def reason(self) -> str:
        """Why it ended, by its output."""
        return last_line(self.cell.folder, self.written)


@dataclass
class Outcome:
    """How a run of the controller ended.

    Attributes:
        done: The cells that are done, of earlier runs, too.
        failed: The cells that have failed.
        interrupted: True if a signal ended the run.
        is_full: True if a cell ended because the disk is full; it goes on, and no other was started after it.
    """

    done: list[Cell] = field(default_factory=list)
    failed: list[Cell] = field(default_factory=list)
    interrupted: bool = False
    is_full: bool = False


class Controller:
    """Starts cells in order as slots of an engine are free, and looks after them.

    A cell whose worker was killed or asked to stop goes on from its checkpoint; one that ends in this way several times
    without a new checkpoint, and one that ends with an error, has failed.

    Args:
        engine: Where cells are trained.
        keep: Which checkpoints of finished cells are kept: ``'none'`` or ``'last'``.
        line: Where the progress is shown.
        clock: Gives the time in seconds.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        engine: Engine,
        keep: str = 'none',
        line: StatusLine | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ):
        self.engine, self.keep = engine, keep
        self.line, self.clock, self.sleep = line or StatusLine(), clock, sleep
        self.outcome, self.durations = Outcome(), []
        self.ends_in_a_row: dict[Path, int] = {}
        self.stopping = False

    def run(self, cells: Sequence[Cell], again: Iterable[Cell] = ()) -> Outcome:
        """Trains the cells that are not done.

        Args:
            cells: All cells of the grid; their folders exist.
            again: Failed ones that are repeated; other failed ones are left as they are.
        """
        again = {cell.folder for cell in again}
        waiting: deque[Cell] = deque()
        for cell in cells:
            if cell.is_done:
                self._finish(cell)
            elif cell.failure and cell.folder not in again:
                self.outcome.failed.append(cell)
            else:
                begin_again(cell)
                waiting.append(cell)
        running: list[Running] = []
        with self._stoppable():
            self._attach(waiting, running)
            while running or (waiting and self._starts_more):
                while waiting and len(running) < self.engine.slots and self._starts_more:
                    running.append(self._start(waiting.popleft()))
                for one in [one for one in running if self._has_ended(one, waiting)]:
                    running.remove(one)
                self._show(len(cells), len(running), len(waiting))
                if running:
                    self.sleep(INTERVAL)
        self.outcome.interrupted = self.stopping
        return self.outcome

    @property
    def _starts_more(self) -> bool:
        return not (self.stopping or self.outcome.is_full)

    def _attach(self, waiting: deque[Cell], running: list[Running]) -> None:
        """Takes over jobs that an earlier controller left running."""
        for cell in list(waiting):
            job = self.engine.attach(cell.folder)
            if job is not None:
                waiting.remove(cell)
                running.append(Running(cell, job, self.clock(), checkpoint_state(cell)))

    def _start(self, cell: Cell) -> Running:
        output = cell.folder / OUTPUT
        written = output.stat().st_size if output.is_file() else 0
        return Running(cell, self.engine.submit(cell.folder), self.clock(), checkpoint_state(cell), written)

    def _has_ended(self, one: Running, waiting: deque[Cell]) -> bool:
        """Looks at a job; a cell that goes on is put in front of those that wait."""
        if self.stopping:
            one.job.stop()
        status = one.job.poll()
        if status is None:
            return False
        cell = one.cell
        if cell.is_done:
            self.durations.append(self.clock() - one.begin)
            self._finish(cell)
        elif goes_on(status) and (self.stopping or self._may_go_on(one)):
            waiting.appendleft(cell)
        elif status == NotWritten.status:
            self.outcome.is_full = True
            waiting.appendleft(cell)
            self.line.say(f'{cell}: stopped, and no other cell is started: {one.reason}')
        else:
            self._fail(one, status)
        return True

    def _may_go_on(self, one: Running) -> bool:
        cell = one.cell
        progress = checkpoint_state(cell) != one.checkpoint
        ends = self.ends_in_a_row[cell.folder] = 0 if progress else self.ends_in_a_row.get(cell.folder, 0) + 1
        if ends < ENDS_WITHOUT_PROGRESS:
            self.line.say(f'{cell}: stopped ({one.reason}); goes on')
            return True
        return False

    def _finish(self, cell: Cell) -> None:
        forget_failures(cell)
        if cell.value is not None:  # the weights of one whose metric is no number are needed to see why
            remove_checkpoints(cell, self.keep)
        self.outcome.done.append(cell)

    def _fail(self, one: Running, status: int) -> None:
        note_failure(one.cell, one.reason, status)
        self.outcome.failed.append(one.cell)
        self.line.say(f'{one.cell}: failed with exit status {status}: {one.reason}')

    def _show(self, total: int, running: int, waiting: int) -> None:
        done, failed = len(self.outcome.done), len(self.outcome.failed)
        parts = [f'{done} of {total} cells done', f'{running} running', f'{failed} failed']
        if self.stopping:
            parts.append('stopping: the running cells save')
        elif self.durations:
            mean = sum(self.durations) / len(self.durations)
            at_a_time = max(1, min(self.engine.slots, running + waiting))
            parts.append(f'about {spoken(mean * (waiting + running / 2) / at_a_time)} left')
        self.line.show(', '.join(parts))

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Lets signals stop the jobs, which save, before this process ends."""

        def stop(number, frame) -> None:
            self.stopping = True

        # One that the process was told to ignore, as `nohup` does with SIGHUP, stays ignored.
        heeded = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
        handlers = {number: signal.signal(number, stop) for number in heeded}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def checkpoint_state(cell: Cell) -> tuple | None:
    """Changes with every checkpoint that a cell writes; None before the first one."""
    path = cell.checkpoint
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return found and (str(path), found.st_ino, found.st_mtime_ns)


def split_failed(cells: Iterable[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The failed cells that may end otherwise when they are repeated, and those that would end alike."""
    failed = [(cell, cell.failure['exit_status']) for cell in cells if cell.failure]
    lasting = [cell for cell, status in failed if status in LASTING]
    return [cell for cell, _ in failed if cell not in lasting], lasting
