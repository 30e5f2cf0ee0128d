"""`torch.compile` with inductor: every plug on both hosts, a training step and inference, against eager.

Models are shallow, for what takes the time is compiling: it grows with the blocks, and every model runs in a process of
its own, so that nothing is compiled before.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from math import nan

import torch
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.utils import counters

from vitplug.backbones import SwinTransformer, VisionTransformer

from .measure import Case, Timer
from .models import MODES, PLUGS
from .processes import in_own_process

SIZE = (112, 112)
BATCH = 4
# Two blocks, or stages, are what plugs that join them need.
HOSTS = {
    'ViT': partial(
        VisionTransformer,
        arch=dict(embed_dims=192, num_layers=2, num_heads=3, feedforward_channels=768),
        img_size=SIZE,
        patch_size=8,
        out_type='featmap',
    ),
    'Swin': partial(
        SwinTransformer,
        arch=dict(embed_dims=48, depths=[2, 1], num_heads=[2, 4]),
        img_size=SIZE,
        out_indices=(0, 1),
        drop_path_rate=0.0,
    ),
}
# A plug of each paper; a variant of one compiles as long as the next paper's.
COMPARED = ('plain', 'CB', 'GAB', 'Residual', 'Broad', 'Refiner')
BACKEND = 'inductor'
# Steps of models this small are quick: no more rounds than fill this time.
SECONDS = 3.0


@dataclass(frozen=True)
class Compiled:
    """What compiling a model brings.

    Attributes:
        host: The host.
        plug: The plug.
        mode: ``'training'`` (forward and backward) or ``'inference'``.
        seconds: Until the first step was through, compiling included.
        breaks: Graph breaks as torch counts them, in every frame; 0 if all of the forward is one graph.
        eager: Median time of a step of the model as it is, in seconds.
        ratio: Median over the rounds of the compiled step's time over that of the model as it is.
        quartiles: Between which half of the rounds' ratios lie.
        error: Why it does not compile; then nothing else was measured.
    """

    host: str
    plug: str
    mode: str
    seconds: float = nan
    breaks: int = 0
    eager: float = nan
    ratio: float = nan
    quartiles: tuple[float, float] = (nan, nan)
    error: str = ''

    def as_dict(self) -> dict:
        return asdict(self)


def run(timer: Timer, dtype: torch.dtype) -> Iterator[Compiled]:
    """All hosts, plugs and modes, one by one."""
    timer = replace(timer, seconds=min(timer.seconds, SECONDS))
    for host, plug, mode in product(HOSTS, COMPARED, MODES):
        yield in_own_process(partial(measure, host, plug, mode, timer, dtype, BACKEND))


def measure(host: str, plug: str, mode: str, timer: Timer, dtype: torch.dtype, backend: str) -> Compiled:
    """One of them."""
    model = HOSTS[host](plugs=PLUGS.get(plug, []))
    both = {'eager': model, 'compiled': torch.compile(model, backend=backend)}
    steps = {name: MODES[mode](one, (BATCH, 3, *SIZE), timer.device, dtype) for name, one in both.items()}
    title = f'{host}, {plug}, {mode}'
    timer.say(f'compile: {title}')
    counters.clear()
    start = time.perf_counter()
    try:
        steps['compiled']()
    except TorchDynamoException as error:
        return Compiled(host, plug, mode, error=f'{type(error).__name__}: {error}')
    seconds = time.perf_counter() - start
    table = timer.compare(title, [Case(name, step) for name, step in steps.items()], ['eager'])
    eager, compiled = table.rows
    breaks = sum(counters['graph_break'].values())
    return Compiled(host, plug, mode, seconds, breaks, eager.seconds, compiled.ratio, compiled.quartiles)
