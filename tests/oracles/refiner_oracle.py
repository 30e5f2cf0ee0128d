"""Refiner's maps, one step after another, from the parameters of its modules; maps are ``(B, W, H, Nq, Nk)``."""

import attention_oracle as oracles
import torch
from torch import Tensor, nn


def refined(maps: Tensor, module: nn.Module, keys, constraint: str = 'none') -> Tensor:
    """Expansion, distributed local attention and reduction; ``keys`` is the grid of the keys."""
    if module.expand is not None:
        maps = oracles.mixed(maps, module.expand[:, :, 0, 0])
    if constraint == 'spatial':
        prefix, image = maps[..., : keys.num_prefix], maps[..., keys.num_prefix :].unflatten(-1, keys.hw)
        image = oracles.convolved(image.movedim(2, 3), module.local).movedim(3, 2)
        maps = torch.cat((prefix, image.flatten(-2)), dim=-1)
    elif constraint == 'rowcol':
        maps = oracles.convolved(maps, module.along_keys) + oracles.convolved(maps, module.along_queries)
    else:
        maps = oracles.convolved(maps, module.local)
    return maps if module.reduce is None else oracles.mixed(maps, module.reduce[:, :, 0, 0])


def weighed(maps: Tensor, v: Tensor) -> Tensor:
    """Each head's values by the maps that are its own."""
    return maps @ v.repeat_interleave(maps.shape[2] // v.shape[2], dim=2)


def normalized(norm: nn.BatchNorm2d, maps: Tensor, training: bool) -> Tensor:
    """Head by head, by the statistics of all images, windows and pairs, or by those collected in training."""
    mean, var = norm.running_mean, norm.running_var
    if training:
        mean, var = maps.mean((0, 1, 3, 4)), maps.var((0, 1, 3, 4), correction=0)
    mean, var, weight, bias = (t[:, None, None] for t in (mean, var, norm.weight, norm.bias))
    return (maps - mean) / (var + norm.eps).sqrt() * weight + bias


def bottleneck(maps: Tensor, module: nn.Module, training: bool) -> Tensor:
    """The official code's chain."""
    wide = oracles.mixed(maps, module.expand[:, :, 0, 0])
    wide = normalized(module.expand_bn, wide, training).clamp(0, 6)
    wide = normalized(module.local_bn, oracles.convolved(wide, module.local), training).clamp(0, 6)
    narrow = oracles.mixed(wide, module.reduce[:, :, 0, 0])
    return normalized(module.adapt_bn, normalized(module.reduce_bn, narrow, training) + maps, training)
