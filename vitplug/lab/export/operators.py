"""Operators of torch that its writer of ONNX gets wrong for open sizes, in operators that it gets right."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitplug.attention.grids import pooling_matrix

# Largest scalar that onnxscript's rewriter takes for 0 when it removes additions.
DROPPED = 1e-8


def mean_of_bins(maps: Tensor, output_size: Sequence[int]) -> Tensor:
    """:func:`torch.nn.functional.adaptive_avg_pool2d` as two matrix products.

    Args:
        maps: ``(..., h, w)``.
        output_size: Rows and columns of bins.

    Returns:
        The mean of every bin, ``(..., rows, columns)``; bins may overlap.
    """
    rows, columns = (pooling_matrix(side, bins, maps) for side, bins in zip(maps.shape[-2:], output_size, strict=True))
    return rows @ maps @ columns.T


def repeat_entries(x: Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """:func:`torch.repeat_interleave` with one number for all entries."""
    x, dim = (x.flatten(), 0) if dim is None else (x, dim % x.ndim)
    return x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :]).flatten(dim, dim + 1)


def add_tiny(x: Tensor, other: Tensor | float, *, alpha: float = 1) -> Tensor:
    """:func:`torch.add`, with a tiny number as a tensor of one entry: the writer drops scalars up to 1e-8 as zeros.

    A Performer's denominator, for example, may be smaller than the 1e-8 that is added to it.
    """
    if isinstance(other, Tensor) or not 0 < abs(alpha * other) <= DROPPED:
        return NotImplemented
    tiny = torch.full((1,), alpha * other, dtype=torch.result_type(x, other), device=x.device)
    return x + tiny if x.ndim else (x[None] + tiny)[0]


def remainder_by_size(x: Tensor, size: torch.SymInt | float) -> Tensor:
    """:func:`torch.remainder` by a size that is open, as a tensor of it: the writer takes numbers alone."""
    if not isinstance(size, torch.SymInt):
        return NotImplemented
    return torch.remainder(x, torch.full((), size, dtype=x.dtype, device=x.device))


#: Operators, and what is written in place of each. The writer's own pooling has the bins of the traced size, without
#: a word, its repetition and its remainder fail where their number is open, and it takes tiny numbers for zeros.
REPLACED: dict[torch._ops.OpOverload, Callable[..., Tensor]] = {
    torch.ops.aten.add.Tensor: add_tiny,
    torch.ops.aten.sub.Tensor: lambda x, other, *, alpha=1: add_tiny(x, other, alpha=-alpha),
    torch.ops.aten.adaptive_avg_pool2d.default: mean_of_bins,
    torch.ops.aten.remainder.Scalar: remainder_by_size,
    torch.ops.aten.repeat_interleave.self_int: repeat_entries,
}
