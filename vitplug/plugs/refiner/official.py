"""The official code: its inverted bottleneck, and the other parts of its pairs of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...attention.carry import Carry, carrying
from ...attention.grids import GridPair
from ...attention.site import Site
from ..learned import LearnedVectors
from .maps import Refine, convolve, new_kernel, start_kernels

if TYPE_CHECKING:
    from .plug import Refiner

SCALE_START = 1e-5


class BottleneckRefine(Refine):
    """The official code's chain::

        A -> 1x1 -> BN -> ReLU6 -> k x k depthwise -> BN -> ReLU6 -> 1x1 -> BN -> + A -> BN

    Batch statistics cover all images, windows and token pairs, masked ones included.
    """

    reference_tokens: Tensor

    def __init__(self, heads: int, num_tokens: int, settings: Refiner):
        super().__init__(settings)
        maps, side = heads * settings.expansion, settings.kernel_size
        self.rescale = settings.rescale_by_tokens
        self.expand = new_kernel(maps, heads, 1, 1)
        self.expand_bn = nn.BatchNorm2d(maps)
        self.local = new_kernel(maps, 1, side, side)
        self.local_bn = nn.BatchNorm2d(maps)
        self.reduce = new_kernel(heads, maps, 1, 1)
        self.reduce_bn = nn.BatchNorm2d(heads)
        self.adapt_bn = nn.BatchNorm2d(heads)
        # With the batch norms' statistics, to which it belongs, in the state dict.
        self.num_tokens = num_tokens
        self.register_buffer('reference_tokens', torch.empty(1, dtype=torch.long))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the kernels."""
        start_kernels(self)
        self.reference_tokens.fill_(self.num_tokens)

    def refine(self, maps_BHNN: Tensor, pairs: GridPair) -> Tensor:
        maps_BHNN = self._rescaled(maps_BHNN).to(self.expand.dtype)
        x = F.relu6(normalize(self.expand_bn, convolve(maps_BHNN, self.expand)))
        x = F.relu6(normalize(self.local_bn, convolve(x, self.local)))
        x = normalize(self.reduce_bn, convolve(x, self.reduce))
        return normalize(self.adapt_bn, x + maps_BHNN)

    def _rescaled(self, maps_BHNN: Tensor) -> Tensor:
        tokens = maps_BHNN.shape[-1]
        if self.rescale is None and self.training:
            self.reference_tokens.fill_(tokens)
        if self.rescale or (self.rescale is None and not self.training):
            return maps_BHNN * (tokens / self.reference_tokens.to(maps_BHNN.dtype))
        return maps_BHNN


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

    def forward(self, x_BND: Tensor, site: Site) -> Tensor:
        # In the precision of the scale, as LayerScale does: half precision has few digits left for such small numbers.
        return x_BND * (2 * self.scale)


def normalize(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Batch norm in its own precision; under autocast the convolution returns half precision."""
    return norm(x.to(norm.weight.dtype))
