"""Estimates how long the cells of a grid take, from a few timed iterations of each variant."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner

from vitplug.analysis.costs import silence_logs
from vitplug.config.parts import model_settings

WARM_UP, TIMED = 2, 5
"""Iterations before the clock starts, and timed ones."""
START_UP = 15.0
"""Seconds until a worker's first iteration: imports, data set, model."""


@dataclass(frozen=True)
class Estimate:
    """Time of one cell.

    Attributes:
        iteration: Seconds per iteration.
        iterations: Number of iterations.
        seconds: Seconds of a cell with all its validations.
    """

    iteration: float
    iterations: int
    seconds: float


def estimate(cfg: Config) -> Estimate:
    """Trains a few iterations and evaluates a few batches, with the loaders in this process; writes nothing.

    Args:
        cfg: The config of a variant.

    Raises:
        ValueError: If a loader gives no batch.
    """
    init_default_scope(cfg.default_scope)
    with silence_logs():
        model = MODELS.build(model_settings(cfg)).to(get_device())
        wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
        train, val = (Runner.build_dataloader(_in_process(cfg[f'{split}_dataloader'])) for split in ('train', 'val'))
        for name, loader in (('train_dataloader', train), ('val_dataloader', val)):
            if not len(loader):
                raise ValueError(
                    f'{cfg.filename}: {name} gives no batch: it has {len(loader.dataset)} images, less than its '
                    'batch_size, and drop_last leaves them out'
                )
        model.train()
        iteration = _mean_time(_batches(train), lambda batch: model.train_step(batch, wrapper))
        model.eval()
        with torch.no_grad():
            batch = _mean_time(_batches(val), model.val_step)
    iterations, validations = count_steps(cfg.train_cfg, len(train))
    return Estimate(iteration, iterations, START_UP + iteration * iterations + batch * len(val) * validations)


def count_steps(loop, batches: int) -> tuple[int, int]:
    """Iterations and validations of a training.

    Args:
        loop: Its `train_cfg`.
        batches: Batches of an epoch.
    """
    length, unit = (loop['max_iters'], 1) if 'max_iters' in loop else (loop['max_epochs'], batches)
    interval, begin = loop.get('val_interval', 1), loop.get('val_begin', 1)
    steps = {*range(interval, length + 1, interval), length}
    return length * unit, sum(step >= begin for step in steps)


def _in_process(loader) -> dict:
    """A loader's settings without worker processes, which would take seconds to start."""
    return {**loader, 'num_workers': 0, 'persistent_workers': False, 'prefetch_factor': None}


def _batches(loader) -> Iterator:
    return itertools.chain.from_iterable(itertools.repeat(loader))


def _mean_time(batches: Iterator, run: Callable) -> float:
    for batch in itertools.islice(batches, WARM_UP):
        run(batch)
    _wait()
    begin = time.perf_counter()
    for batch in itertools.islice(batches, TIMED):
        run(batch)
    _wait()
    return (time.perf_counter() - begin) / TIMED


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
