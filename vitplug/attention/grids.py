"""Where tokens lie: the grid that travels with them, and the windows a feature map is cut into."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import is_compiling

# Tokens of different regions of a shifted window; the host's value, large enough for softmax.
MASKED = -100.0


def ceil_div(number: int | Tensor, divisor: int) -> int | Tensor:
    """``number / divisor`` rounded up, of numbers from 0 on.

    ``-(-number // divisor)`` is exported wrong: ONNX rounds the quotient of a negative number towards zero.
    """
    return (number + divisor - 1) // divisor


@dataclass(frozen=True)
class WindowLayout:
    """How a feature map of ``height x width`` tokens is cut into square windows.

    Args:
        height: Rows of the feature map.
        width: Columns of the feature map.
        window: Side of a window; the map is padded to a multiple of it at bottom and right.
        shift: Tokens by which the windows are shifted towards bottom right.
    """

    height: int
    width: int
    window: int
    shift: int = 0

    @property
    def padded(self) -> tuple[int, int]:
        return tuple(ceil_div(side, self.window) * self.window for side in (self.height, self.width))

    @property
    def windows(self) -> tuple[int, int]:
        """Rows and columns of windows."""
        return tuple(side // self.window for side in self.padded)

    @property
    def grid(self) -> 'TokenGrid':
        """The grid one window's attention sees."""
        return TokenGrid(self.window, self.window, layout=self)

    @property
    def is_padded(self) -> bool:
        return self.padded != (self.height, self.width)

    def slots(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The place among those of all windows, after shift: of every token ``(h * w,)``, and of the padding."""
        build = _slots if is_compiling() else _cached_slots
        return build(self, device)

    def to_windows(self, x_BND: Tensor, padding_1D: Tensor | None = None) -> Tensor:
        """Tokens ``(B, h * w, D)`` to those of windows ``(B, W, N, D)`` in one copy, padded with zeros or a token."""
        padding_1D = x_BND.new_zeros(1, x_BND.shape[-1]) if padding_1D is None else padding_1D
        rows, cols = self.windows
        windows = _Scatter.apply(x_BND, padding_1D, *self.slots(x_BND.device))
        return windows.unflatten(1, (rows * cols, self.window**2))

    def from_windows(self, x_BWND: Tensor) -> Tensor:
        """Undoes :meth:`to_windows`; what lies on padding is dropped."""
        return _Gather.apply(x_BWND.flatten(1, 2), *self.slots(x_BWND.device))

    def mask(self, device: torch.device) -> Tensor | None:
        """Additive mask ``(W, N, N)`` that keeps regions of a shifted window apart; None without shift.

        A cache serves it, except while compiling or exporting: a graph must depend on nothing
        that Python changes between calls.
        """
        if not self.shift:
            return None
        build = _shift_mask if is_compiling() else _cached_shift_mask
        return build(*self.padded, self.window, self.shift, device)


@dataclass(frozen=True)
class TokenGrid:
    """How the N tokens of one attention lie in the image. Without windows it is the layout of global attention.

    Args:
        height: Rows of the token grid (of one window where attention is windowed).
        width: Columns of the token grid.
        num_prefix: Tokens before the grid's, such as the class token.
        layout: The windows, None for global attention.
    """

    height: int
    width: int
    num_prefix: int = 0
    layout: WindowLayout | None = None

    @property
    def num_tokens(self) -> int:
        return self.num_prefix + self.height * self.width

    @property
    def grid(self) -> 'TokenGrid':
        """The grid global attention sees: this one."""
        return self

    @property
    def is_padded(self) -> bool:
        return False

    def to_windows(self, x_BND: Tensor) -> Tensor:
        """``(B, N, D)`` to ``(B, 1, N, D)``: the image is the only window."""
        return x_BND.unsqueeze(1)

    def from_windows(self, x_BWND: Tensor) -> Tensor:
        """Undoes :meth:`to_windows`."""
        return x_BWND.squeeze(1)

    def mask(self, device: torch.device) -> None:
        """Global attention keeps no tokens apart."""

    def expand_offsets(self, table_Hyx: Tensor) -> Tensor:
        """A value for every offset (query minus key) to one for every token pair; prefix tokens get 0.

        Args:
            table_Hyx: ``(H, 2h-1, 2w-1)``, the offset (0, 0) in the middle.

        Returns:
            ``(H, N, N)``, rows are queries.
        """
        # Sliding over the table puts the keys in reverse order: no index table of N x N entries is needed.
        slid = table_Hyx.unfold(1, self.height, 1).unfold(2, self.width, 1)
        pairs_HNN = slid.flip(3, 4).flatten(3, 4).flatten(1, 2)
        return F.pad(pairs_HNN, (self.num_prefix, 0, self.num_prefix, 0)) if self.num_prefix else pairs_HNN

    def to_row_table(self, table_Hyx: Tensor) -> Tensor:
        """What :meth:`add_rows` cuts the rows of :meth:`expand_offsets` from, in far less memory.

        Returns:
            ``(H, w, (2h-1) * w)``: for a column of queries, the values of all keys above and below in reading order.
        """
        slid_Hyxx = table_Hyx.flip(1, 2).unfold(2, self.width, 1)
        return slid_Hyxx.flip(2).transpose(1, 2).flatten(2)

    def add_rows(self, pairs: Tensor, row_table: Tensor, rows: slice) -> None:
        """Adds some rows of :meth:`expand_offsets` to ``(H, rows, N)``; keys after the N are left alone."""
        for places, columns, keys in self._cuts(rows):
            pairs[:, places, self.num_prefix : self.num_tokens].add_(row_table[:, columns, keys])

    def add_to_row_table(self, row_table: Tensor, rows: slice, pairs: Tensor) -> None:
        """Adds ``(H, rows, N)`` to where :meth:`add_rows` takes rows from: its transpose."""
        for places, columns, keys in self._cuts(rows):
            row_table[:, columns, keys].add_(pairs[:, places, self.num_prefix : self.num_tokens])

    def _cuts(self, rows: slice) -> Iterator[tuple[slice, slice, slice]]:
        """For every row of the grid that some query rows touch: where it is among them, its columns, and its keys."""
        low, high = max(0, rows.start - self.num_prefix), rows.stop - self.num_prefix
        before = rows.start - self.num_prefix
        for y in range(low // self.width, ceil_div(high, self.width)):
            start = y * self.width
            first, last = max(low, start), min(high, start + self.width)
            keys = slice((self.height - 1 - y) * self.width, (2 * self.height - 1 - y) * self.width)
            yield slice(first - before, last - before), slice(first - start, last - start), keys

    @property
    def windows(self) -> tuple[int, int]:
        """Rows and columns of windows, (1, 1) for global attention."""
        return self.layout.windows if self.layout else (1, 1)

    @property
    def shift(self) -> int:
        """Tokens by which the windows are shifted."""
        return self.layout.shift if self.layout else 0


def _shift_mask(height: int, width: int, window: int, shift: int, device: torch.device) -> Tensor:
    # Inference tensors could not be used by a later training forward.
    with torch.inference_mode(False):
        rows, cols = (_regions(side, window, shift, device) for side in (height, width))
        region_WN = rows[:, None, :, None] * 3 + cols[None, :, None, :]
        region_WN = region_WN.flatten(2, 3).flatten(0, 1)
        return (region_WN[:, :, None] != region_WN[:, None, :]).float() * MASKED


def _regions(side: int, window: int, shift: int, device: torch.device) -> Tensor:
    """Region number (0, 1, 2) of every position along one axis after the roll, by window."""
    position = torch.arange(side, device=device)
    region = (position >= side - window).long() + (position >= side - shift).long()
    return region.view(-1, window)


def _slots(layout: WindowLayout, device: torch.device) -> tuple[Tensor, Tensor]:
    # Inference tensors could not be used by a later training forward.
    with torch.inference_mode(False):
        (row, y), (col, x) = (_window_and_place(padded, layout, device) for padded in layout.padded)
        window_hw = row[:, None] * layout.windows[1] + col[None, :]
        place_hw = y[:, None] * layout.window + x[None, :]
        slots_hw = window_hw * layout.window**2 + place_hw
        below, beside = slots_hw[layout.height :], slots_hw[: layout.height, layout.width :]
        tokens = slots_hw[: layout.height, : layout.width]
        return tokens.flatten(), torch.cat((below.flatten(), beside.flatten()))


def _window_and_place(padded: int, layout: WindowLayout, device: torch.device) -> tuple[Tensor, Tensor]:
    """Window and place inside it of every position along one axis."""
    # No negative numbers before the remainder: inductor cannot bound the indices that come of them.
    position = (torch.arange(padded, device=device) + (padded - layout.shift)) % padded
    return position // layout.window, position % layout.window


_cached_slots = lru_cache(maxsize=64)(_slots)


class _Scatter(torch.autograd.Function):
    """Tokens to their slots, padding to the others. The gradient of one is the other; autograd's own would add."""

    @staticmethod
    def forward(ctx, x_BND, padding_1D, slots, pads):
        ctx.save_for_backward(slots, pads)
        windows_BSD = x_BND.new_empty(x_BND.shape[0], len(slots) + len(pads), x_BND.shape[2])
        windows_BSD.index_copy_(1, slots, x_BND)
        if len(pads):  # ONNX has no scatter to nowhere
            windows_BSD.index_copy_(1, pads, padding_1D.expand(len(x_BND), len(pads), -1))
        return windows_BSD

    @staticmethod
    def backward(ctx, grad):
        slots, pads = ctx.saved_tensors
        grad_padding = grad.index_select(1, pads).sum((0, 1))[None] if ctx.needs_input_grad[1] else None
        return _Gather.apply(grad, slots, pads), grad_padding, None, None


class _Gather(torch.autograd.Function):
    """Tokens from their slots."""

    @staticmethod
    def forward(ctx, x_BSD, slots, pads):
        ctx.save_for_backward(slots, pads)
        return x_BSD.index_select(1, slots)

    @staticmethod
    def backward(ctx, grad):
        return _Scatter.apply(grad, grad.new_zeros(1, grad.shape[-1]), *ctx.saved_tensors), None, None


# Large maps have large masks (12 MB for the first stage of Swin at 800 x 1216), so only few are kept.
_cached_shift_mask = lru_cache(maxsize=16)(_shift_mask)


def relative_position_index(height: int, width: int) -> Tensor:
    """Index of the relative offset, query minus key, of every token pair into a ``(2h-1)(2w-1)`` table.

    Returns:
        ``(N, N)`` of int64, N = height * width, tokens in row-major order.
    """
    y, x = (t.flatten() for t in torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij'))
    dy, dx = y[:, None] - y[None, :], x[:, None] - x[None, :]
    return (dy + height - 1) * (2 * width - 1) + dx + width - 1
