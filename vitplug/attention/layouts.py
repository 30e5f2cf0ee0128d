"""Layouts: how the tokens of a feature map are cut into the windows that attention sees.

A layout turns tokens ``(B, N, D)`` into windows ``(B, W, N, D)`` and back, and knows the grid of one window. Global
attention has one window, the whole image.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.compat import is_exporting

from .cache import cached
from .grids import TokenGrid, ceil_div

# Logit of pairs from different regions of a shifted window; the host's value, large enough for softmax.
MASKED = -100.0
# Logit of padded keys that the softmax must not see: exp gives 0 in every precision, and half precision can hold it.
HIDDEN = -1e4
# Index into the tokens of all windows of one image: of every map token, and of the padding.
Slots = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class GlobalLayout:
    """The whole feature map as one window.

    Args:
        height: Rows of the feature map.
        width: Columns of the feature map.
        num_prefix: Tokens before the map's, such as the class token.
    """

    height: int
    width: int
    num_prefix: int = 0

    is_windowed = False
    is_padded = False
    windows = (1, 1)
    shift = 0

    @property
    def hw(self) -> tuple[int, int]:
        """Rows and columns of the feature map."""
        return self.height, self.width

    @property
    def grid(self) -> TokenGrid:
        """The grid of the tokens that attend to each other."""
        return TokenGrid(self.height, self.width, self.num_prefix)

    def to_windows(self, x_BND: Tensor, padding_1D: Tensor | None = None) -> Tensor:
        """``(B, N, D)`` to ``(B, 1, N, D)``; nothing is padded."""
        return x_BND.unsqueeze(1)

    def from_windows(self, x_BWND: Tensor) -> Tensor:
        """Undoes :meth:`to_windows`."""
        return x_BWND.squeeze(1)

    def slots(self, device: torch.device) -> None:
        """Tokens stay where they are."""

    def mask(self, device: torch.device) -> None:
        """No mask: all tokens see each other."""

    def hidden_keys(self, device: torch.device) -> None:
        """No padding."""


@dataclass(frozen=True)
class WindowLayout:
    """How a feature map of ``height x width`` tokens is cut into square windows.

    Args:
        height: Rows of the feature map.
        width: Columns of the feature map.
        window: Side of a window; the map is padded to a multiple of it at bottom and right.
        shift: Tokens by which the windows are shifted towards bottom right.
        hides_padding: Whether the softmax does not see the padding of windows. Stock models show it.
    """

    height: int
    width: int
    window: int
    shift: int = 0
    hides_padding: bool = False

    is_windowed = True
    num_prefix = 0

    @property
    def hw(self) -> tuple[int, int]:
        """Rows and columns of the feature map."""
        return self.height, self.width

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns after padding to whole windows."""
        window = self.window
        return ceil_div(self.height, window) * window, ceil_div(self.width, window) * window

    @property
    def windows(self) -> tuple[int, int]:
        """Rows and columns of windows."""
        height, width = self.padded
        return height // self.window, width // self.window

    @property
    def grid(self) -> TokenGrid:
        """The grid of one window."""
        return TokenGrid(self.window, self.window)

    @property
    def is_padded(self) -> bool:
        """Whether the map is padded to whole windows; an exported graph, which has no one size, always is."""
        return is_exporting() or self.padded != (self.height, self.width)

    def slots(self, device: torch.device) -> Slots | None:
        """Index into the tokens of all shifted windows: of every map token ``(h * w,)``, and of the padding.

        None in a graph that is exported for all sizes, whose operations are others.
        """
        return None if is_exporting() else _slots(self, device)

    def to_windows(self, x_BND: Tensor, padding_1D: Tensor | None = None) -> Tensor:
        """Tokens ``(B, h * w, D)`` to windows ``(B, W, N, D)`` in one copy, padded with zeros or the given token."""
        slots = self.slots(x_BND.device)
        if slots is None:
            cut = self._cut(x_BND)
            return (
                cut if padding_1D is None else cut + (1 - self._cut(x_BND.new_ones(1, x_BND.shape[1], 1))) * padding_1D
            )
        rows, cols = self.windows
        return to_slots(x_BND, slots, padding_1D).unflatten(1, (rows * cols, self.window**2))

    def _cut(self, x_BND: Tensor) -> Tensor:
        """:meth:`to_windows` with padding of zeros, in operations that all sizes of an exported graph share."""
        (height, width), (rows, cols), side = self.padded, self.windows, self.window
        x_BhwD = F.pad(x_BND.unflatten(1, self.hw), (0, 0, 0, width - self.width, 0, height - self.height))
        x_BhwD = x_BhwD.roll((-self.shift, -self.shift), (1, 2)) if self.shift else x_BhwD
        cut = x_BhwD.unflatten(2, (cols, side)).unflatten(1, (rows, side))
        return cut.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def _join(self, x_BWND: Tensor) -> Tensor:
        """Undoes :meth:`_cut`."""
        (rows, cols), side = self.windows, self.window
        x_BhwD = x_BWND.unflatten(2, (side, side)).unflatten(1, (rows, cols)).transpose(2, 3)
        x_BhwD = x_BhwD.flatten(3, 4).flatten(1, 2)
        x_BhwD = x_BhwD.roll((self.shift, self.shift), (1, 2)) if self.shift else x_BhwD
        # By indices: whether a slice is one piece of memory depends on the size.
        for dim, side in ((1, self.height), (2, self.width)):
            x_BhwD = x_BhwD.index_select(dim, torch.arange(side, device=x_BhwD.device))
        return x_BhwD.flatten(1, 2)

    def from_windows(self, x_BWND: Tensor) -> Tensor:
        """Undoes :meth:`to_windows`; padding is dropped."""
        slots = self.slots(x_BWND.device)
        return self._join(x_BWND) if slots is None else from_slots(x_BWND.flatten(1, 2), slots)

    def mask(self, device: torch.device) -> Tensor | None:
        """Additive mask ``(W, N, N)`` that separates the regions of shifted windows; None without shift."""
        if not self.shift:
            return None
        return _shift_mask(*self.padded, self.window, self.shift, device)

    def hidden_keys(self, device: torch.device) -> Tensor | None:
        """Additive mask ``(W, N)`` of the padding; None where there is none, or the softmax sees it."""
        if not self.hides_padding or not self.is_padded:
            return None
        tokens = torch.zeros(1, self.height * self.width, 1, device=device)
        return self.to_windows(tokens, tokens.new_full((1, 1), HIDDEN))[0, :, :, 0]


Layout = GlobalLayout | WindowLayout
"""How the tokens of a feature map lie in windows."""


def to_slots(x_BND: Tensor, slots: Slots, padding_1D: Tensor | None = None) -> Tensor:
    """Tokens to their slots in windows, ``(B, W * N, D)``, in one copy; zeros or the given token to the others."""
    return _Scatter.apply(x_BND, padding_1D, *slots)


def from_slots(x_BSD: Tensor, slots: Slots) -> Tensor:
    """Undoes :func:`to_slots`."""
    return _Gather.apply(x_BSD, *slots)


# Large maps have large masks (12 MB for the first stage of Swin at 800 x 1216), so only few are kept.
@cached(16)
def _shift_mask(height: int, width: int, window: int, shift: int, device: torch.device) -> Tensor:
    rows, cols = (_regions(side, window, shift, device) for side in (height, width))
    region_WN = rows[:, None, :, None] * 3 + cols[None, :, None, :]
    region_WN = region_WN.flatten(2, 3).flatten(0, 1)
    return (region_WN[:, :, None] != region_WN[:, None, :]).float() * MASKED


def _regions(side: int, window: int, shift: int, device: torch.device) -> Tensor:
    """Region number (0, 1, 2) of every position along one axis after the roll, by window."""
    position = torch.arange(side, device=device)
    region = (position >= side - window).long() + (position >= side - shift).long()
    return region.view(-1, window)


@cached(64)
def _slots(layout: WindowLayout, device: torch.device) -> tuple[Tensor, Tensor]:
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


class _Scatter(torch.autograd.Function):
    """Tokens to their slots, padding to the others. Its gradient is :class:`_Gather`; autograd's own would add up."""

    @staticmethod
    def forward(ctx: Any, x_BND: Tensor, padding_1D: Tensor | None, slots: Tensor, pads: Tensor) -> Tensor:
        ctx.save_for_backward(slots, pads)
        windows_BSD = x_BND.new_empty(x_BND.shape[0], slots.shape[0] + pads.shape[0], x_BND.shape[2])
        windows_BSD.index_copy_(1, slots, x_BND)
        if len(pads):  # ONNX has no scatter to nowhere
            padding_1D = x_BND.new_zeros(1, x_BND.shape[2]) if padding_1D is None else padding_1D
            windows_BSD.index_copy_(1, pads, padding_1D.expand(x_BND.shape[0], pads.shape[0], -1))
        return windows_BSD

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        slots, pads = ctx.saved_tensors
        grad_padding = grad.index_select(1, pads).sum((0, 1))[None] if ctx.needs_input_grad[1] else None
        return _Gather.apply(grad, slots, pads), grad_padding, None, None


class _Gather(torch.autograd.Function):
    """Tokens from their slots. Its gradient is :class:`_Scatter`."""

    @staticmethod
    def forward(ctx: Any, x_BSD: Tensor, slots: Tensor, pads: Tensor) -> Tensor:
        ctx.save_for_backward(slots, pads)
        return x_BSD.index_select(1, slots)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return _Scatter.apply(grad, None, *ctx.saved_tensors), None, None
