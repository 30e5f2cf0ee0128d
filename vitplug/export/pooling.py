"""Adaptive average pooling in operations that ONNX has, for maps of any size."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitplug.attention.grids import ceil_div, means_of_ranges


def mean_of_bins(maps: Tensor, output_size: Sequence[int]) -> Tensor:
    """:func:`torch.nn.functional.adaptive_avg_pool2d` as two matrix products.

    Args:
        maps: ``(..., h, w)``.
        output_size: Rows and columns of bins.

    Returns:
        The mean of every bin, ``(..., rows, columns)``.
    """
    (height, width), (rows, columns) = maps.shape[-2:], output_size
    return _weights(height, rows, maps) @ maps @ _weights(width, columns, maps).T


def _weights(side: int, bins: int, like: Tensor) -> Tensor:
    """The share ``(bins, side)`` that every position has in the mean of a bin; bins may overlap."""
    number = torch.arange(bins, device=like.device)
    return means_of_ranges(number * side // bins, ceil_div((number + 1) * side, bins), side, like.dtype)
