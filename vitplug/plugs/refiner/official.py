"""The parts of the official code's blocks beside the bottleneck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...attention.carry import Carry, carrying
from ...attention.site import Site
from ..learned import LearnedVectors
from .bottleneck import BottleneckRefine

if TYPE_CHECKING:
    from .plug import Refiner

SCALE_START = 1e-5


class ResidualMap(nn.Module):
    """First block of an official pair: its maps ``(B, W, H, N, N)`` plus ``scale`` times the last pair's maps."""

    def __init__(self, key: str, scale: float):
        super().__init__()
        self.key = key
        self.scale = scale

    def forward(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The sum, which is used and handed on; at the first pair the maps as they are."""
        maps = torch.add(probs, carry[self.key], alpha=self.scale) if self.key in carry else probs
        return maps, carrying(carry, self.key, maps)


class RefinedReuse(BottleneckRefine):
    """Second block of an official pair: ``scale`` times the refined maps of the first, which stay in the carry."""

    def __init__(self, heads: int, num_tokens: int, scale: float, settings: Refiner):
        super().__init__(heads, num_tokens, settings)
        self.scale = scale

    def forward(self, probs: Tensor, site: Site, carry: Carry) -> tuple[Tensor, Carry]:
        """The maps that multiply the values, and the carry as it was; ``probs`` has no head."""
        maps, _ = super().forward(carry[self.key], site, carry)
        return self.scale * maps, carry


class Doubled(nn.Module):
    """``2 x`` of a branch's tokens ``(B, N, D)``."""

    def forward(self, x_BND: Tensor, site: Site) -> Tensor:
        return 2 * x_BND


class DoubledScale(LearnedVectors):
    """``2 scale x`` of a branch's tokens ``(B, N, D)``, ``scale`` of shape ``(D,)`` starting at 1e-5."""

    scale: nn.Parameter

    def __init__(self, dims: int):
        super().__init__(dims, scale=SCALE_START)

    def forward(self, x_BND: Tensor, site: Site) -> Tensor:
        # In the precision of the scale, as LayerScale does: half precision has few digits left for such small numbers.
        return x_BND * (2 * self.scale)
