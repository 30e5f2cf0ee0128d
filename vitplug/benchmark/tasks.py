"""Whole tasks: a training iteration of the digits configs with vitplug's backbone and with the stock one."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner

from vitplug.datasets.digit_scenes import make_digit_scenes

from .measure import Case, Table, Timer

CONFIGS = {
    'Digits segmentation, UPerNet on ViT': 'vit-mini-p8_upernet_1xb8-1200i_digits-128x128.py',
    'Digits detection, Mask R-CNN on Swin': 'swin-mini-p4-w4_mask-rcnn_1xb8-400i_digits-128x128.py',
}


def run(timer: Timer, configs: Path, data: Path) -> list[Table]:
    """One table for each task, on a few scenes that are made in a folder of their own."""
    make_digit_scenes(data, num_classification=(10, 10), num_scenes=(16, 1), log=timer.say)
    os.environ['VITPLUG_DIGITS'] = str(data)
    return [_task(title, configs / 'digits' / name, timer) for title, name in CONFIGS.items()]


def _task(title: str, path: Path, timer: Timer) -> Table:
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    loader = Runner.build_dataloader({**cfg.train_dataloader, 'num_workers': 0, 'persistent_workers': False}, seed=0)
    batch = next(iter(loader))
    backbone = cfg.model.backbone
    steps = {'vitplug': _iteration(cfg, batch, timer.device)}
    backbone.type = backbone.type.replace('vitplug.', 'mmpretrain.')
    steps['mmpretrain'] = _iteration(cfg, batch, timer.device)
    targets = {'vitplug': 1.0 if 'Swin' in title else None}
    cases = [Case(name, step, targets.get(name)) for name, step in steps.items()]
    title = f'{title}, training iteration, batch {cfg.train_dataloader.batch_size}'
    return timer.compare(title, cases, ['mmpretrain'])


def _iteration(cfg: Config, batch: dict, device: str) -> Callable[[], None]:
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    model = model.to(device)
    model.train()
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper)
    return lambda: model.train_step(batch, optimizer)
