"""Times a training iteration of the digits configs with vitplug's backbone and with the stock one."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from torch import nn

from vitplug.datasets.digit_scenes import make_digit_scenes

from .measure import Case, Table, Timer
from .processes import in_own_process

CONFIGS = {
    'Digits segmentation, UPerNet on ViT': 'vit-mini-p8_upernet_1xb8-1200i_digits-128x128.py',
    'Digits detection, Mask R-CNN on Swin': 'swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py',
}


def run(timer: Timer, configs: Path, data: Path) -> Iterator[Table]:
    """One table per task, on a few scenes made in the folder ``data``."""
    make_digit_scenes(data, num_classification=(10, 10), num_scenes=(16, 1), log=timer.say)
    for title, name in CONFIGS.items():
        yield in_own_process(partial(_task, title, configs / 'digits' / name, data, timer))


def _task(title: str, path: Path, data: Path, timer: Timer) -> Table:
    os.environ['VITPLUG_DIGITS'] = str(data)
    cfg = read(path)
    batch = first_batch(cfg)
    backbone = cfg.model.backbone
    models = {'vitplug': build(cfg, timer.device)}
    backbone.type = backbone.type.replace('vitplug.', 'mmpretrain.')
    models['mmpretrain'] = build(cfg, timer.device)
    # The same weights, because a detector's work depends on its proposals.
    models['mmpretrain'].load_state_dict(models['vitplug'].state_dict())
    targets = {'vitplug': 1.0 if 'Swin' in title else None}
    cases = [Case(name, _iteration(cfg, model, batch), targets.get(name)) for name, model in models.items()]
    title = f'{title}, training iteration, batch {cfg.train_dataloader.batch_size}'
    return timer.compare(title, cases, ['mmpretrain'])


def read(path: Path) -> Config:
    """Reads a config and sets its default scope."""
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    return cfg


def first_batch(cfg: Config) -> dict:
    """The first batch of the training data."""
    in_process = dict(num_workers=0, persistent_workers=False, prefetch_factor=None)
    loader = Runner.build_dataloader({**cfg.train_dataloader, **in_process}, seed=0)
    return next(iter(loader))


def build(cfg: Config, device: str) -> nn.Module:
    """The model of a config, newly initialised, in training mode."""
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model.to(device).train()


def _iteration(cfg: Config, model: nn.Module, batch: dict) -> Callable[[], None]:
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper)
    return lambda: model.train_step(batch, optimizer)
