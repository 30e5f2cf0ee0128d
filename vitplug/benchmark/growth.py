"""Measures the growth of time and memory of a training step with the number of tokens.

Every size runs in a new process; the peak memory of the process is the memory of the step.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from vitplug.backbones import VisionTransformer

from .models import PLUGS, training
from .processes import in_own_process

SIDES = (32, 48, 64)
# Target for the growth of memory: maximum slope of log memory over log tokens.
SLOPES = {'plain': None, 'CB': 1.2, 'GAB': 1.2, 'Broad': 1.2, 'Residual': 1.2, 'DLA alone': 1.2, 'Refiner': 1.4}
LEAN = {**PLUGS, 'plain': [], 'Residual': [dict(type='ResidualAttention', low_memory=True)]}


@dataclass
class Growth:
    """One plug's growth.

    Args:
        name: The plug.
        tokens: Patch tokens.
        seconds: Time of one step, by size.
        gigabytes: Memory of the step, without model and input, by size.
        target: Maximum slope of memory.
    """

    name: str
    tokens: list[int]
    seconds: list[float]
    gigabytes: list[float]
    target: float | None = None

    def slope(self, values: Sequence[float]) -> float:
        """Slope of log values over log tokens, between the first and the last size."""
        return math.log(values[-1] / values[0]) / math.log(self.tokens[-1] / self.tokens[0])

    def as_dict(self) -> dict:
        slopes = dict(time_slope=self.slope(self.seconds), memory_slope=self.slope(self.gigabytes))
        return {**asdict(self), **slopes}


def run(device: str, say, texts: Sequence[str] | None = None) -> Iterator[Growth]:
    """Growth of DeiT-S at batch 1 for every plug of the five papers, residual attention in its low-memory form.

    Args:
        device: ``'cpu'`` or ``'cuda'``.
        say: Receives lines of progress.
        texts: Texts of plugs to measure in place of these, beside plain.
    """
    tokens = [side * side for side in SIDES]
    plugs = LEAN if texts is None else {'plain': [], **{text: text for text in texts}}
    for name in SLOPES if texts is None else plugs:
        say(f'growth: {name}')
        results = [in_own_process(partial(measure, plugs[name], side, device)) for side in SIDES]
        yield Growth(name, tokens, *map(list, zip(*results, strict=True)), SLOPES.get(name))


def measure(plugs: str | Sequence[Mapping], side: int, device: str) -> tuple[float, float]:
    """Seconds and gigabytes of one training step with plugs, images of ``side`` x ``side`` tokens."""
    size = 16 * side
    model = VisionTransformer(arch='deit-small', img_size=size, plugs=plugs)
    # Warm-up: a small step loads libraries and kernels.
    training(model, (1, 3, 64, 64), device, torch.float32)()
    step = training(model, (1, 3, size, size), device, torch.float32)
    memory = MEMORIES[device]
    before = memory()
    start = time.perf_counter()
    step()
    peak = memory()
    return time.perf_counter() - start, max(peak - before, 1e-3)


def _cpu_peak() -> float:
    # Not getrusage: its maximum is inherited from the parent process.
    status = Path('/proc/self/status').read_text(encoding='utf-8')
    return int(re.search(r'VmHWM:\s*(\d+) kB', status).group(1)) / 2**20


def _cuda_peak() -> float:
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


MEMORIES = {'cpu': _cpu_peak, 'cuda': _cuda_peak}
