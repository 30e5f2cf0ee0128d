"""A model and the first batch of a config."""

import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner
from torch import nn


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
