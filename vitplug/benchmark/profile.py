"""Profiles a step by kind of operation."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from .measure import Row, Table
from .models import MODES, PLUGS, deit, mmpretrain_swin, swin
from .processes import in_own_process

SIZE = (512, 512)
STEPS = 3
# For each table: name, model, batch size and mode.
CASES = [
    ("vitplug's plain Swin-T", swin, 1, 'training'),
    ("mmpretrain's plain Swin-T", mmpretrain_swin, 1, 'training'),
    ("vitplug's plain Swin-T", swin, 1, 'inference'),
    ("mmpretrain's plain Swin-T", mmpretrain_swin, 1, 'inference'),
    ('plain DeiT-S', partial(deit, SIZE[0]), 2, 'training'),
    ('DeiT-S with GAB', partial(deit, SIZE[0], PLUGS['GAB']), 2, 'training'),
]
# Kinds of operations by the prefixes of their names; the first match is used.
KINDS = {
    'matrix products': ('aten::addmm', 'aten::mm', 'aten::bmm', 'aten::baddbmm'),
    'fused attention': ('aten::_scaled_dot_product',),
    'softmax': ('aten::_softmax', 'aten::_safe_softmax'),
    'copies': ('aten::copy_', 'aten::cat', 'aten::index', 'aten::fill_', 'aten::roll', 'aten::constant_pad'),
    'layer norm': ('aten::native_layer_norm',),
    'GELU': ('aten::gelu',),
    'sums by element': ('aten::add', 'aten::sub', 'aten::sum'),
    'products by element': ('aten::mul', 'aten::masked_fill', 'aten::div'),
}
REST = 'everything else'


def run(device: str, dtype: torch.dtype, say) -> Iterator[Table]:
    """Tables of the cases."""
    for name, build, batch, mode in CASES:
        title = f'Where the time of {name} goes, {SIZE[0]} x {SIZE[1]}, batch {batch}, {mode}'
        say(f'profile: {title}')
        yield in_own_process(partial(table, title, build, (batch, 3, *SIZE), mode, device, dtype))


def table(title: str, build: Callable[[], nn.Module], shape, mode: str, device: str, dtype: torch.dtype) -> Table:
    """The table of one model."""
    return shares(title, MODES[mode](build(), shape, device, dtype), device)


def shares(title: str, step: Callable[[], None], device: str) -> Table:
    """Time of a step by kind of operation, and its share of the step."""
    step()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == 'cuda' else [])]
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step()
    times = by_kind({event.key: _microseconds(event, device) for event in profiler.key_averages()})
    whole = sum(times.values())
    rows = [Row(kind, time / STEPS / 1e6, time / whole) for kind, time in times.items()]
    return Table(title, 'the whole step', rows)


def by_kind(times: Mapping[str, float]) -> dict[str, float]:
    """Times of operations, summed by :data:`KINDS`."""
    totals = Counter()
    for operation, time in times.items():
        totals[next((kind for kind, starts in KINDS.items() if operation.startswith(starts)), REST)] += time
    return {kind: totals[kind] for kind in (*KINDS, REST)}


def _microseconds(event, device: str) -> float:
    return event.self_device_time_total if device == 'cuda' else event.self_cpu_time_total
