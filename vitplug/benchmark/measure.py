"""Interleaved timing: what is compared is run in turn, so that a slow minute of the machine slows all alike."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles

import torch


@dataclass
class Case:
    """One thing to time.

    Args:
        name: What it is, as the table's first column has it.
        step: Runs it once.
        target: Largest ratio to the reference that is aimed for, if any.
    """

    name: str
    step: Callable[[], object]
    target: float | None = None


@dataclass
class Row:
    """One line of the table.

    Args:
        name: What was timed.
        seconds: Median of its rounds.
        ratio: Median over the rounds of its time over the reference's in the same round.
        target: Largest ratio aimed for.
        quartiles: Between which half of the rounds' ratios lie.
    """

    name: str
    seconds: float
    ratio: float
    target: float | None = None
    quartiles: tuple[float, float] | None = None


@dataclass
class Table:
    """What was measured side by side.

    Args:
        title: What was measured.
        reference: The name of the line that counts as 1; where several are named, the fastest of them.
        rows: The lines.
    """

    title: str
    reference: str
    rows: list[Row] = field(default_factory=list)

    def as_dict(self) -> dict:
        return asdict(self)


def silent(text: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Timer:
    """Times what is compared, case by case and round by round.

    Args:
        device: ``'cpu'`` or ``'cuda'``.
        rounds: Rounds that count, at least.
        seconds: What they take together, at least: the quicker a step, the more rounds a steady median needs.
        say: Takes a line about what is going on; a function that can be pickled, for tables have their own processes.
    """

    device: str
    rounds: int
    seconds: float = 0.0
    say: Callable[[str], None] = silent

    def compare(self, title: str, cases: Sequence[Case], references: Sequence[str]) -> Table:
        """Times cases in turn, after one round that does not count; every other round in reverse order.

        Args:
            title: What is compared.
            cases: The cases.
            references: Names of those that count as 1. Of several, the one with the smallest median does.

        Returns:
            The table, in the order of the cases.
        """
        self._round(f'{title}: warming up', cases)
        rounds: list[dict[str, float]] = []
        while len(rounds) < self.rounds or sum(sum(times.values()) for times in rounds) < self.seconds:
            # What ran before leaves its traces in caches and memory: each case is to follow either neighbour.
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
    """What it is measured on."""
    cpu = f'{_cpu_name()}, {torch.get_num_threads()} threads'
    name = torch.cuda.get_device_name() if device == 'cuda' else cpu
    return dict(device=name, torch=torch.__version__, python=platform.python_version())


def _cpu_name() -> str:
    try:
        with open('/proc/cpuinfo', encoding='utf-8') as file:
            return next(line.split(':')[1].strip() for line in file if line.startswith('model name'))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
