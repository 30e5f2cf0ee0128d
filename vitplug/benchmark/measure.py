"""Interleaved timing: what is compared is run in turn, so that a slow minute of the machine slows all alike."""

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

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
    """

    name: str
    seconds: float
    ratio: float
    target: float | None = None


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


def compare(
    title: str, cases: Sequence[Case], references: Sequence[str], rounds: int, device: str, say=lambda text: None
) -> Table:
    """Times cases in turn, round by round, after one round that does not count.

    Args:
        title: What is compared.
        cases: The cases.
        references: Names of those that count as 1. Of several, the one with the smallest median does.
        rounds: Rounds that count.
        device: ``'cpu'`` or ``'cuda'``.
        say: Takes a line about what is going on.

    Returns:
        The table, in the order of the cases.
    """
    clock = CLOCKS[device]
    times: dict[str, list[float]] = {case.name: [] for case in cases}
    for index in range(rounds + 1):
        say(f'{title}: round {index} of {rounds}')
        for case in cases:
            seconds = clock(case.step)
            if index:
                times[case.name].append(seconds)
    reference = min(references, key=lambda name: median(times[name]))
    rows = [
        Row(case.name, median(own), median(t / r for t, r in zip(own, times[reference], strict=True)), case.target)
        for case in cases
        for own in [times[case.name]]
    ]
    return Table(title, reference, rows)


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
