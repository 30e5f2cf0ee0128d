"""Layouts: how the tokens of a feature map are cut into the windows that attention sees.

A layout turns tokens ``(B, N, D)`` into windows ``(B, W, N, D)`` and back, and knows the grid of one window. Global
attention has one window, the whole image.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cache import cached
from .grids import TokenGrid, ceil_div

# Logit of pairs from different regions of a shifted window; the host's value, large enough for softmax.
MASKED = -100.0
# Logit of padded keys that the softmax must not see: exp gives 0 in every precision, and half precision can hold it.
HIDDEN = -1e4


class Slots(NamedTuple):
    """Which places in windows the tokens of a map have. Places of all windows of one image are counted in a row.

    Args:
        places: The place of every token, ``(h * w,)``.
        tokens: The token at every place, ``(W * N,)``; some other where there is padding.
        padding: The places without one, or, in a compiled graph, where their number is open, a mask of all places;
            None where the map is cut into whole windows.
    """

    places: Tensor
    tokens: Tensor
    padding: Tensor | None


@dataclass(frozen=True)
class GlobalLayout(TokenGrid):
    """The whole feature map as one window."""

    is_windowed = False
    windows = (1, 1)
    shift = 0

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
        """Whether the map is padded to whole windows; always in a compiled graph, which may serve other sizes."""
        return torch.compiler.is_compiling() or self.padded != (self.height, self.width)

    def slots(self, device: torch.device) -> Slots:
        """Which places in windows the tokens have."""
        return _slots(self, self.is_padded, device)

    def to_windows(self, x_BND: Tensor, padding_1D: Tensor | None = None) -> Tensor:
        """Tokens ``(B, h * w, D)`` to windows ``(B, W, N, D)`` in one copy, padded with zeros or the given token."""
        return to_slots(x_BND, self.slots(x_BND.device), padding_1D).unflatten(1, (-1, self.window**2))

    def from_windows(self, x_BWND: Tensor) -> Tensor:
        """Undoes :meth:`to_windows`; padding is dropped."""
        return from_slots(x_BWND.flatten(1, 2), self.slots(x_BWND.device))

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
    return _Moved.apply(x_BND, padding_1D, slots, True)


def from_slots(x_BSD: Tensor, slots: Slots) -> Tensor:
    """Undoes :func:`to_slots`."""
    return _Moved.apply(x_BSD, None, slots, False)


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
def _slots(layout: WindowLayout, is_padded: bool, device: torch.device) -> Slots:
    height, width = layout.hw
    # No negative numbers before the remainder: inductor cannot bound the indices that come of them.
    axes = zip(layout.hw, layout.padded, strict=True)
    y, x = ((torch.arange(side, device=device) + (padded - layout.shift)) % padded for side, padded in axes)
    window = (y // layout.window)[:, None] * layout.windows[1] + x // layout.window
    place = (y % layout.window)[:, None] * layout.window + x % layout.window
    row, column = (_by_window(side, layout, device) for side in layout.padded)
    token = row[:, None, :, None] * width + column[:, None, :]
    exists = ((row < height)[:, None, :, None] & (column < width)[:, None, :]).flatten()
    padding = ~exists if is_padded else None
    if is_padded and not torch.compiler.is_compiling():
        padding = exists.int().argsort()[: exists.numel() - height * width]  # nonzero waits for a GPU
    return Slots((window * layout.window**2 + place).flatten(), token.flatten() * exists, padding)


def _by_window(padded: int, layout: WindowLayout, device: torch.device) -> Tensor:
    """The row, or column, of the map at every place along one axis, ``(windows, side of a window)``."""
    return ((torch.arange(padded, device=device) + layout.shift) % padded).view(-1, layout.window)


class _Moved(torch.autograd.Function):
    """Tokens to their places, with padding at the others, or back. Each is the other's gradient: autograd's adds up."""

    @staticmethod
    def forward(ctx: Any, x_BND: Tensor, padding_1D: Tensor | None, slots: Slots, to_places: bool) -> Tensor:
        ctx.slots, ctx.to_places = slots, to_places
        padding = slots.padding if to_places else None
        moved_BND = x_BND[:, slots.tokens if to_places else slots.places]
        if padding is None:
            return moved_BND
        if padding.dtype == torch.bool:
            value = moved_BND.new_zeros(1) if padding_1D is None else padding_1D
            return torch.where(padding[:, None], value, moved_BND)
        moved_BND[:, padding] = 0 if padding_1D is None else padding_1D
        return moved_BND

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        padding, grad_padding = ctx.slots.padding, None
        if ctx.needs_input_grad[1] and padding is not None:
            is_mask = padding.dtype == torch.bool
            grad_padding = (torch.where(padding[:, None], grad, 0) if is_mask else grad[:, padding]).sum((0, 1))[None]
        return _Moved.apply(grad, None, ctx.slots, not ctx.to_places), grad_padding, None, None
