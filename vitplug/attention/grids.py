"""Token grids, and the pairs of a query and a key that two grids make."""

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .cache import cached

Number = TypeVar('Number', int, Tensor)

# Pairs up to which a bias by offset is looked up by an index of each; above, indices alone would take 8 MB and more.
MOST_INDICES = 1 << 20


def ceil_div(number: Number, divisor: int) -> Number:
    """``number / divisor`` rounded up, of numbers from 0 on.

    ``-(-number // divisor)`` is exported wrong: ONNX rounds the quotient of a negative number towards zero.
    """
    return (number + divisor - 1) // divisor


def means_of_ranges(start: Tensor, end: Tensor, side: int, dtype: torch.dtype) -> Tensor:
    """The matrix ``(N, side)`` whose product with ``side`` entries is the mean of the entries in each of N ranges.

    Args:
        start: First entry of each range ``(N,)``.
        end: One after its last entry ``(N,)``; no range is empty.
        side: Number of entries.
        dtype: Of the matrix.
    """
    entry = torch.arange(side, device=start.device)
    inside = ((entry >= start[:, None]) & (entry < end[:, None])).to(dtype)
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
        # A graph has no one size: it gets one form, and sizes are not compared.
        if torch.compiler.is_compiling() or self.queries.num_tokens * self.keys.num_tokens <= MOST_INDICES:
            return self._look_up(table_Hyx, step)
        surplus, prefixes = -self.keys.num_tokens % step, (self.keys.num_prefix, self.queries.num_prefix)
        table_Hyx = table_Hyx.unflatten(1, self.table_size) if table_Hyx.ndim == 2 else table_Hyx
        if not any(prefixes):
            return self._slide(table_Hyx, surplus)
        return F.pad(self._slide(table_Hyx), (prefixes[0], surplus, prefixes[1], 0))

    def _look_up(self, table_Hyx: Tensor, step: int) -> Tensor:
        """By an index of every pair. Its gradient adds up: torch's deterministic algorithms fix the order."""
        index = _pair_index(self, step, table_Hyx.device)
        flat = table_Hyx if table_Hyx.ndim == 2 else table_Hyx.flatten(1)
        if self.keys.num_prefix or self.queries.num_prefix:
            flat = F.pad(flat, (0, 1))
        return flat.index_select(1, index).unflatten(1, (self.queries.num_tokens, -1))

    def _slide(self, table_Hyx: Tensor, surplus: int = 0) -> Tensor:
        """The pairs of grid tokens ``(H, Nq, Nk + surplus)`` in one copy, without an index table of as many entries.

        A row of queries sees a part of the row table, as large as the keys' grid; the next row sees the part before it.
        """
        # (H, qw, (qh + kh - 1) * kw): for a column of queries, the values of all keys above and below in reading order.
        row_table = table_Hyx.unfold(2, self.keys.width, 1).flip(1, 3).transpose(1, 2).flatten(2)
        row_table = F.pad(row_table, (0, surplus)) if surplus else row_table
        height, width = self.keys.hw
        slid = row_table.unfold(2, height * width + surplus, width)
        return _Reversed.apply(slid.transpose(1, 2)).flatten(1, 2)


class _Reversed(torch.autograd.Function):
    """The second axis in reverse order, in a contiguous tensor: that of `flip` has the order of overlapping strides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.index_select(1, _last_to_first(x.shape[1], x.device))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Reversed.apply(grad)


@cached(32)
def _pair_index(pairs: GridPair, step: int, device: torch.device) -> Tensor:
    """Index of every pair into the flat table, ``(Nq * Nk rounded up,)``; the entry after it for prefix tokens."""
    table_width, last = pairs.table_size[1], pairs.table_size[0] * pairs.table_size[1]
    (y, x), (key_y, key_x) = (
        (
            torch.arange(grid.height * grid.width, device=device) // grid.width,
            torch.arange(grid.height * grid.width, device=device) % grid.width,
        )
        for grid in (pairs.queries, pairs.keys)
    )
    rows = y[:, None] - key_y + (pairs.keys.height - 1)
    index = rows * table_width + (x[:, None] - key_x + (pairs.keys.width - 1))
    sides = (pairs.keys.num_prefix, 0, pairs.queries.num_prefix, 0)
    index = F.pad(index, sides, value=last) if any(sides) else index
    return F.pad(index, (0, -pairs.keys.num_tokens % step)).flatten()


@cached(64)
def _last_to_first(number: int, device: torch.device) -> Tensor:
    return torch.arange(number - 1, -1, -1, device=device)


def relative_position_index(height: int, width: int) -> Tensor:
    """Index of the relative offset, query minus key, of every token pair into a ``(2h-1)(2w-1)`` table.

    Returns:
        ``(N, N)`` of int64, N = height * width, tokens in row-major order.
    """
    y, x = (t.flatten() for t in torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij'))
    dy, dx = y[:, None] - y[None, :], x[:, None] - x[None, :]
    return (dy + height - 1) * (2 * width - 1) + dx + width - 1
