"""Token grids, and the pairs of a query and a key that two grids make."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .cache import cached

Number = TypeVar('Number', int, Tensor)
Arguments = ParamSpec('Arguments')

# Pairs of a query and a key up to which a tensor of them all is kept, such as indices of 8 MB.
MOST_KEPT = 1 << 20


def ceil_div(number: Number, divisor: int) -> Number:
    """``number / divisor`` rounded up, of numbers from 0 on.

    ``-(-number // divisor)`` is exported wrong: ONNX rounds the quotient of a negative number towards zero.
    """
    return (number + divisor - 1) // divisor


def pooling_matrix(side: int, bins: int, like: Tensor) -> Tensor:
    """The matrix ``(bins, side)`` whose product with ``side`` entries is their ``F.adaptive_avg_pool1d``."""
    number, entry = (torch.arange(count, device=like.device) for count in (bins, side))
    start, end = number * side // bins, ceil_div((number + 1) * side, bins)
    inside = ((entry >= start[:, None]) & (entry < end[:, None])).to(like.dtype)
    return inside / inside.sum(1, keepdim=True)


@dataclass(frozen=True)
class TokenGrid:
    """How the N tokens of one window, or of a whole image, lie in the image.

    Args:
        height: Rows of the grid.
        width: Columns of the grid.
        num_prefix: Tokens before the grid's, such as the class token.
    """

    height: int
    width: int
    num_prefix: int = 0

    @property
    def num_tokens(self) -> int:
        return self.num_prefix + self.height * self.width

    @property
    def hw(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width


@dataclass(frozen=True)
class GridPair:
    """All pairs of a query and a key, each on its own grid.

    A position bias has one value for every offset, query minus key, counted in rows and columns: a table
    ``(H or 1, qh + kh - 1, qw + kw - 1)`` whose entry ``(kh - 1, kw - 1)`` belongs to the offset ``(0, 0)``.

    Args:
        queries: Grid of the queries, ``qh x qw``.
        keys: Grid of the keys, ``kh x kw``.
    """

    queries: TokenGrid
    keys: TokenGrid

    @property
    def table_size(self) -> tuple[int, int]:
        """Offsets along rows and columns: ``(qh + kh - 1, qw + kw - 1)``."""
        (qh, qw), (kh, kw) = self.queries.hw, self.keys.hw
        return qh + kh - 1, qw + kw - 1

    @property
    def are_few(self) -> bool:
        """Whether a tensor of all pairs may be kept."""
        return self.queries.num_tokens * self.keys.num_tokens <= MOST_KEPT

    def offsets(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """All vertical offsets ``(qh + kh - 1,)`` and all horizontal ones ``(qw + kw - 1,)``, in float32 or wider."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        dy, dx = (
            torch.arange(1 - k, q, device=like.device, dtype=dtype)
            for q, k in zip(self.queries.hw, self.keys.hw, strict=True)
        )
        return dy, dx

    def expand(self, table_Hyx: Tensor, step: int = 1) -> Tensor:
        """A value for every offset to one for every pair, ``(H, Nq, Nk)``; pairs with a prefix token get 0.

        Args:
            table_Hyx: The table, or its rows one after the other, ``(H, offsets)``.
            step: Nk is rounded up to a multiple of it; values of keys that do not exist mean nothing.
        """
        # Its gradient adds up: torch's deterministic algorithms fix the order.
        index = pair_index(self, step, table_Hyx.device)
        flat = table_Hyx if table_Hyx.ndim == 2 else table_Hyx.flatten(1)
        if self.keys.num_prefix or self.queries.num_prefix:
            flat = F.pad(flat, (1, 0))
        return flat.index_select(1, index).unflatten(1, (self.queries.num_tokens, -1))


def finer(pairs: GridPair) -> tuple[int, int]:
    """Rows and columns of the finer one of two grids."""
    (qh, qw), (kh, kw) = pairs.queries.hw, pairs.keys.hw
    return max(qh, kh), max(qw, kw)


def distances(pairs: GridPair, like: Tensor) -> list[Tensor]:
    """Distances of the centres of queries and keys in tokens of the finer grid, ``(qh, kh)`` and ``(qw, kw)``."""
    distances = []
    for unit, *sides in zip(finer(pairs), pairs.queries.hw, pairs.keys.hw, strict=True):
        q, k = ((torch.arange(side, device=like.device, dtype=like.dtype) + 0.5) * (unit / side) for side in sides)
        distances.append(q[:, None] - k)
    return distances


def kept_for_few(
    build: Callable[Concatenate[GridPair, Arguments], Tensor],
) -> Callable[Concatenate[GridPair, Arguments], Tensor]:
    """Keeps what a function has built for all pairs of its last arguments, unless there are many pairs."""
    keep = cached(32)(build)

    @wraps(build)
    def build_or_find(pairs: GridPair, *args: Arguments.args, **settings: Arguments.kwargs) -> Tensor:
        # Sizes of a graph that is compiled or exported are not compared.
        return (keep if not torch.compiler.is_compiling() and pairs.are_few else build)(pairs, *args, **settings)

    return build_or_find


@kept_for_few
def pair_index(pairs: GridPair, step: int, device: torch.device) -> Tensor:
    """Index of every pair into the flat table, ``(Nq * Nk rounded up,)``; the entry before it for prefix tokens."""
    (y, x), (key_y, key_x) = (
        (tokens // grid.width, tokens % grid.width)
        for grid in (pairs.queries, pairs.keys)
        for tokens in [torch.arange(grid.height * grid.width, device=device)]
    )
    rows = y[:, None] - key_y + (pairs.keys.height - 1)
    index = rows * pairs.table_size[1] + (x[:, None] - key_x + (pairs.keys.width - 1))
    sides = (pairs.keys.num_prefix, 0, pairs.queries.num_prefix, 0)
    index = F.pad(index + 1, sides) if any(sides) else index
    return F.pad(index, (0, -pairs.keys.num_tokens % step)).flatten()
