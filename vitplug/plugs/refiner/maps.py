"""Refined and reused maps: how they are handed on and multiply the values; kernels and convolutions of maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...attention.carry import Carry, carrying
from ...attention.grids import GridPair
from ...attention.site import Site, without_hidden
from ...attention.tuning import on_cpu

if TYPE_CHECKING:
    from .plug import Refiner


class Matched(nn.Module):
    """The product of refined or reused maps with the values."""

    def __init__(self, settings: Refiner):
        super().__init__()
        self.key = settings.name
        self.copies = settings.copies

    def weigh(self, maps: Tensor, v_BWHNd: Tensor) -> tuple[Tensor, Tensor]:
        """Maps ``(B, W, r H, Nq, Nk)`` times the values, map ``h'`` with the values of head ``h' // r``.

        Returns:
            ``(B, W, r H, Nq, d)``, and the further value heads.
        """
        heads = maps.shape[2] // self.copies
        own, rest = v_BWHNd[:, :, :heads], v_BWHNd[:, :, heads:]
        # All copies of a head in one product, so that its values need no repetition.
        out = maps.unflatten(2, (heads, self.copies)).flatten(3, 4) @ own
        return out.unflatten(3, (self.copies, -1)).flatten(2, 3), rest


class ReusedMap(Matched):
    """Takes the refined map of an earlier block in place of an own one."""

    def forward(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The handed-over maps; ``probs`` has no head."""
        return carry[self.key], carry


class Refine(Matched):
    """Refines maps ``(B, W, H, Nq, Nk)``; the linear and the bottleneck form differ in :meth:`refine`."""

    def __init__(self, settings: Refiner):
        super().__init__(settings)
        self.hands_over = settings.share > 0

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        """Refined maps of one batch of windows."""
        raise NotImplementedError

    def forward(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps ``(B, W, H or r H, Nq, Nk)`` that multiply the values, and the carry."""
        # A padded query is no neighbour. Where the softmax sees padding, as in stock image models, padding counts.
        valid_queries = None if site.attends_padding else site.valid_queries
        if valid_queries is not None:
            probs = probs.masked_fill(~valid_queries[:, :, None, :, None], 0)
        # The convolution carries probability over to pairs of tokens that must not see each other.
        maps = without_hidden(self.refine(probs.flatten(0, 1), site.pairs).unflatten(0, probs.shape[:2]), site)
        return maps, carrying(carry, self.key, maps) if self.hands_over else carry


class UnrefinedMap(Refine):
    """Hands a map over as it is."""

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        return maps_BHNN


def convolve(maps: Tensor, kernel: Tensor) -> Tensor:
    """Correlation with zero padding, on the plane of ``(B, H, N, N)`` or the volume of ``(B, H, N, h, w)``."""
    conv = F.conv2d if kernel.ndim == 4 else F.conv3d
    padding = tuple(side // 2 for side in kernel.shape[2:])
    return conv(maps, kernel, padding=padding, groups=maps.shape[1] // kernel.shape[1])


def channels_last(maps: Tensor) -> Tensor:
    """Maps ``(B, H, rows, N)`` in the layout in which a CPU convolves few channels fastest, up to three times so."""
    return maps.contiguous(memory_format=torch.channels_last) if on_cpu(maps.device) else maps


def new_kernel(*shape: int) -> nn.Parameter:
    """A kernel, to be given its start by :func:`start_kernels`."""
    return nn.Parameter(torch.empty(shape))


def start_kernels(module: nn.Module) -> None:
    """Starts the kernels of a module as PyTorch's convolutions do."""
    for kernel in module.parameters(recurse=False):
        nn.init.kaiming_uniform_(kernel, a=5**0.5)
