"""Token grids, and the pairs of a query and a key that two grids make."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import is_exporting

from .cache import cached

Number = TypeVar('Number', int, Tensor)


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
            table_Hyx: The table.
            step: Nk is rounded up to a multiple of it; values of keys that do not exist mean nothing.
        """
        prefixes = self.keys.num_prefix, self.queries.num_prefix
        surplus = -self.keys.num_tokens % step
        if is_exporting():
            return self._padded(self._gather(table_Hyx), surplus)
        if any(prefixes):
            return self._padded(self._slide(table_Hyx), surplus)
        return self._slide(table_Hyx, surplus)

    def _padded(self, pairs_HNN: Tensor, surplus: int) -> Tensor:
        """Pairs of grid tokens, with zeros for prefix tokens before them and for surplus keys after them."""
        sides = (self.keys.num_prefix, surplus, self.queries.num_prefix, 0)
        return F.pad(pairs_HNN, sides) if any(sides) else pairs_HNN

    def _slide(self, table_Hyx: Tensor, surplus: int = 0) -> Tensor:
        """The pairs of grid tokens ``(H, Nq, Nk + surplus)`` in one copy, without an index table of as many entries.

        A row of queries sees a part of the row table, as large as the keys' grid; the next row sees the part before it.
        """
        row_table = self.to_row_table(table_Hyx)
        row_table = F.pad(row_table, (0, surplus)) if surplus else row_table
        height, width = self.keys.hw
        slid = row_table.unfold(2, height * width + surplus, width)
        return _Reversed.apply(slid.transpose(1, 2)).flatten(1, 2)

    def _gather(self, table_Hyx: Tensor) -> Tensor:
        """The pairs of grid tokens ``(H, Nq, Nk)`` by indices: sliding would fix the size of an exported graph."""
        for dim, queries, keys in zip((1, 3), self.queries.hw, self.keys.hw, strict=True):
            q, k = (torch.arange(side, device=table_Hyx.device) for side in (queries, keys))
            offsets = (q[:, None] - k + keys - 1).flatten()
            table_Hyx = table_Hyx.index_select(dim, offsets).unflatten(dim, (queries, keys))
        return table_Hyx.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def to_row_table(self, table_Hyx: Tensor) -> Tensor:
        """The table in the form that :meth:`add_rows` cuts rows from; far smaller than :meth:`expand`.

        Returns:
            ``(H, qw, (qh + kh - 1) * kw)``: for a column of queries, the values of all keys above and below in
            reading order.
        """
        slid_Hyxx = table_Hyx.unfold(2, self.keys.width, 1)
        return slid_Hyxx.flip(1, 3).transpose(1, 2).flatten(2)

    def add_rows(self, pairs: Tensor, row_table: Tensor, rows: slice) -> None:
        """Adds some rows of :meth:`expand` to ``(H, rows, keys)``; keys after the grid's are left alone."""
        for places, columns, keys in self._cuts(rows):
            pairs[:, places, self._grid_keys].add_(row_table[:, columns, keys])

    def add_to_row_table(self, row_table: Tensor, rows: slice, pairs: Tensor) -> None:
        """Adds ``(H, rows, keys)`` to the entries that :meth:`add_rows` reads: its transpose."""
        for places, columns, keys in self._cuts(rows):
            row_table[:, columns, keys].add_(pairs[:, places, self._grid_keys])

    @property
    def _grid_keys(self) -> slice:
        return slice(self.keys.num_prefix, self.keys.num_tokens)

    def _cuts(self, rows: slice) -> Iterator[tuple[slice, slice, slice]]:
        """For every grid row that a query slice touches: its place in the slice, its columns, and its keys."""
        (height, width), (key_height, key_width) = self.queries.hw, self.keys.hw
        before = rows.start - self.queries.num_prefix
        low, high = max(0, before), rows.stop - self.queries.num_prefix
        for y in range(low // width, ceil_div(high, width)):
            start = y * width
            first, last = max(low, start), min(high, start + width)
            keys = slice((height - 1 - y) * key_width, (height - 1 - y + key_height) * key_width)
            yield slice(first - before, last - before), slice(first - start, last - start), keys


class _Reversed(torch.autograd.Function):
    """The second axis in reverse order, in a contiguous tensor: that of `flip` has the order of overlapping strides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.index_select(1, _last_to_first(x.shape[1], x.device))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Reversed.apply(grad)


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
