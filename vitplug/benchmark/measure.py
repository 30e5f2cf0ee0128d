"""Interleaved timing: cases run in turn, so that a slow phase of the machine affects all cases equally."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles

import torch


@dataclass
class Case:
    """A case to time.

    Args:
        name: Name in the table's first column.
        step: Runs it once.
        target: Maximum ratio to the reference, if there is a target.
    """

    name: str
    step: Callable[[], object]
    target: float | None = None


@dataclass
class Row:
    """One row of the table.

    Args:
        name: Name of the case.
        seconds: Median time over the rounds.
        ratio: Time divided by the reference's time in the same round, median over the rounds.
        target: Maximum ratio, if there is a target.
        quartiles: First and third quartile of the rounds' ratios.
    """

    name: str
    seconds: float
    ratio: float
    target: float | None = None
    quartiles: tuple[float, float] | None = None


@dataclass
class Table:
    """The result of a comparison.

    Args:
        title: Title of the table.
        reference: Name of the row with ratio 1.
        rows: The rows.
    """

    title: str
    reference: str
    rows: list[Row] = field(default_factory=list)

    def as_dict(self) -> dict:
        return asdict(self)


def silent(text: str) -> None:
    """Discards a line of progress."""


@dataclass(frozen=True)
class Timer:
    """Times cases in rounds.

    Args:
        device: ``'cpu'`` or ``'cuda'``.
        rounds: Minimum number of rounds.
        seconds: Minimum total time of the rounds: short steps need more rounds for a stable median.
        say: Receives lines of progress. It must be picklable, because tables are measured in other processes.
    """

    device: str
    rounds: int
    seconds: float = 0.0
    say: Callable[[str], None] = silent

    def compare(self, title: str, cases: Sequence[Case], references: Sequence[str]) -> Table:
        """Times cases in turn after one warm-up round; every other round runs in reverse order.

        Args:
            title: Title of the table.
            cases: The cases.
            references: Names of the reference cases; the ratio is relative to the one with the smallest median.

        Returns:
            The table, in the order of the cases.
        """
        self._round(f'{title}: warming up', cases)
        rounds: list[dict[str, float]] = []
        while len(rounds) < self.rounds or sum(sum(times.values()) for times in rounds) < self.seconds:
            # The previous case affects caches and memory: alternating the order lets each case follow both neighbours.
            order = cases if len(rounds) % 2 else cases[::-1]
            rounds.append(self._round(f'{title}: round {len(rounds) + 1}', order))
        reference = min(references, key=lambda name: median(times[name] for times in rounds))
        return Table(f'{title}, {len(rounds)} rounds', reference, [_row(case, rounds, reference) for case in cases])

    def _round(self, text: str, cases: Sequence[Case]) -> dict[str, float]:
        self.say(text)
        return {case.name: CLOCKS[self.device](case.step) for case in cases}


def _row(case: Case, rounds: Sequence[Mapping[str, float]], reference: str) -> Row:
    ratios = [times[case.name] / times[reference] for times in rounds]
    low, middle, high = quantiles(ratios, n=4, method='inclusive') if len(ratios) > 1 else 3 * ratios
    return Row(case.name, median(times[case.name] for times in rounds), middle, case.target, (low, high))


def _time_on_cpu(step: Callable) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _time_on_cuda(step: Callable) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


CLOCKS = {'cpu': _time_on_cpu, 'cuda': _time_on_cuda}


def machine(device: str) -> dict[str, str]:
    """Device, torch and Python version of the measurement."""
    cpu = f'{_cpu_name()}, {torch.get_num_threads()} threads'
    name = torch.cuda.get_device_name() if device == 'cuda' else cpu
    return dict(device=name, torch=torch.__version__, python=platform.python_version())


def _cpu_name() -> str:
    try:
        with open('/proc/cpuinfo', encoding='utf-8') as file:
            return next(line.split(':')[1].strip() for line in file if line.startswith('model name'))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
