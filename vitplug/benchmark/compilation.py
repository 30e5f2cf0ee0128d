"""Times `torch.compile` with inductor against eager: the plugs on ViT and Swin, a segmentor and a detector.

Models are shallow, because compile time grows with the number of blocks. Every model runs in a new process, so that
nothing is already compiled.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from math import nan
from pathlib import Path

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.utils import counters

from vitplug.backbones import SwinTransformer, VisionTransformer
from vitplug.datasets.digit_scenes import make_digit_scenes

from .measure import Case, Timer
from .models import MODES, PLUGS
from .processes import in_own_process
from .tasks import CONFIGS, build, first_batch, read

SIZE = (112, 112)
BATCH = 4
# Two blocks or stages, because some plugs connect blocks.
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
# One plug per paper; variants compile about as long.
COMPARED = ('plain', 'CB', 'GAB', 'Residual', 'Broad', 'Refiner')
BACKEND = 'inductor'
# Time of the rounds per model; steps of these small models are short.
SECONDS = 3.0


@dataclass(frozen=True)
class Compiled:
    """Result of compiling a model.

    Attributes:
        host: The host, or the task.
        plug: The plug.
        mode: ``'training'`` (forward, and for a host backward) or ``'inference'``.
        seconds: Time of the first step, including compilation.
        breaks: Graph breaks in all frames, as counted by torch; 0 if the forward pass is one graph.
        eager: Median time of an eager step, in seconds.
        ratio: Compiled over eager time, median over the rounds.
        quartiles: First and third quartile of the rounds' ratios.
        error: Error message if the model does not compile; then nothing else is measured.
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


def run(timer: Timer, dtype: torch.dtype, configs: Path, data: Path) -> Iterator[Compiled]:
    """All hosts, plugs and modes, then the tasks; the tasks' data are made in the folder ``data``."""
    timer = replace(timer, seconds=min(timer.seconds, SECONDS))
    for host, plug, mode in product(HOSTS, COMPARED, MODES):
        yield in_own_process(partial(measure, host, plug, mode, timer, dtype, BACKEND))
    make_digit_scenes(data, num_classification=(10, 10), num_scenes=(16, 1), log=timer.say)
    for task, mode in product(CONFIGS, MODES):
        yield in_own_process(partial(measure_task, task, mode, configs / 'digits', data, timer, BACKEND))


def measure(host: str, plug: str, mode: str, timer: Timer, dtype: torch.dtype, backend: str) -> Compiled:
    """One host with one plug in one mode."""
    model = HOSTS[host](plugs=PLUGS.get(plug, []))
    both = {'eager': model, 'compiled': torch.compile(model, backend=backend)}
    steps = {name: MODES[mode](one, (BATCH, 3, *SIZE), timer.device, dtype) for name, one in both.items()}
    return _compare(host, plug, mode, steps, timer)


def measure_task(task: str, mode: str, configs: Path, data: Path, timer: Timer, backend: str) -> Compiled:
    """Losses of a training step, or predictions, of a whole model."""
    os.environ['VITPLUG_DIGITS'] = str(data)
    cfg = read(configs / CONFIGS[task])
    model = build(cfg, timer.device).train(mode == 'training')
    samples = model.data_preprocessor(first_batch(cfg), True)  # pads images of several sizes to one
    forward = dict(training='loss', inference='predict')[mode]

    def step(one: nn.Module) -> None:
        with torch.set_grad_enabled(mode == 'training'):
            one(**samples, mode=forward)

    both = {'eager': model, 'compiled': torch.compile(model, backend=backend)}
    return _compare(task, 'plain', mode, {name: partial(step, one) for name, one in both.items()}, timer)


def _compare(host: str, plug: str, mode: str, steps: Mapping[str, Callable[[], None]], timer: Timer) -> Compiled:
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
