"""The inverted bottleneck of the official code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...attention.grids import GridPair
from .convolution import convolve, new_kernel, start_kernels
from .maps import Refine

if TYPE_CHECKING:
    from .plug import Refiner


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


def normalize(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Batch norm in its own precision; under autocast the convolution returns half precision."""
    return norm(x.to(norm.weight.dtype))
