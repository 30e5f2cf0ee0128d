"""Operators of torch that its writer of ONNX gets wrong for open sizes, in operators that it gets right."""

from collections.abc import Callable, Sequence

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


def repeat_entries(x: Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """:func:`torch.repeat_interleave` with one number for all entries."""
    x, dim = (x.flatten(), 0) if dim is None else (x, dim % x.ndim)
    return x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :]).flatten(dim, dim + 1)


#: Operators, and what is written in place of each. The writer's own pooling has the bins of the traced size, without
#: a word, and its repetition fails where the number of repeats is open.
REPLACED: dict[torch._ops.OpOverload, Callable[..., Tensor]] = {
    torch.ops.aten.adaptive_avg_pool2d.default: mean_of_bins,
    torch.ops.aten.repeat_interleave.self_int: repeat_entries,
}
