"""Where tokens lie: the grid that travels with them, and the windows a feature map is cut into."""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

# Tokens of different regions of a shifted window; the host's value, large enough for softmax.
MASKED = -100.0


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
        return tuple(-(-side // self.window) * self.window for side in (self.height, self.width))

    @property
    def windows(self) -> tuple[int, int]:
        """Rows and columns of windows."""
        return tuple(side // self.window for side in self.padded)

    @property
    def grid(self) -> 'TokenGrid':
        """The grid one window's attention sees."""
        return TokenGrid(self.window, self.window, layout=self)

    def arrange(self, x_BND: Tensor) -> Tensor:
        """Tokens ``(B, h * w, D)`` as the padded and shifted map ``(B, padded h, padded w, D)``."""
        return self.pad_and_shift(x_BND.unflatten(1, (self.height, self.width)))

    def pad_and_shift(self, x_BhwD: Tensor) -> Tensor:
        """Pads with zeros to whole windows and rolls so that shifted windows become regular ones."""
        padded_h, padded_w = self.padded
        if (padded_h, padded_w) != (self.height, self.width):
            x_BhwD = F.pad(x_BhwD, (0, 0, 0, padded_w - self.width, 0, padded_h - self.height))
        if self.shift:
            x_BhwD = x_BhwD.roll((-self.shift, -self.shift), dims=(1, 2))
        return x_BhwD

    def unshift_and_crop(self, x: Tensor) -> Tensor:
        """Undoes :meth:`pad_and_shift` on ``(B, padded h, padded w, ...)``."""
        if self.shift:
            x = x.roll((self.shift, self.shift), dims=(1, 2))
        return x[:, : self.height, : self.width]

    def to_windows(self, x_BhwHd: Tensor) -> Tensor:
        """``(B, padded h, padded w, H, d)`` to ``(B, W, H, N, d)``, in one copy."""
        rows, cols = self.windows
        x = x_BhwHd.unflatten(2, (cols, self.window)).unflatten(1, (rows, self.window))
        # B rows y cols x H d  ->  B rows cols H y x d
        return x.permute(0, 1, 3, 5, 2, 4, 6).flatten(4, 5).flatten(1, 2)

    def from_windows(self, x_BWHNd: Tensor) -> Tensor:
        """Undoes :meth:`to_windows`, padding and shift: ``(B, h, w, H, d)``."""
        x = x_BWHNd.unflatten(3, (self.window, self.window)).unflatten(1, self.windows)
        # B rows cols H y x d  ->  B rows y cols x H d
        x = x.permute(0, 1, 4, 2, 5, 3, 6).flatten(3, 4).flatten(1, 2)
        return self.unshift_and_crop(x)

    def mask(self, device: torch.device) -> Tensor | None:
        """Additive mask ``(W, N, N)`` that keeps regions of a shifted window apart; None without shift.

        A cache serves it, except while compiling or exporting: a graph must depend on nothing
        that Python changes between calls.
        """
        if not self.shift:
            return None
        build = _shift_mask if torch.compiler.is_compiling() else _cached_shift_mask
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

    def arrange(self, x_BND: Tensor) -> Tensor:
        """Tokens of global attention stay as they are."""
        return x_BND

    def to_windows(self, x_BNHd: Tensor) -> Tensor:
        """``(B, N, H, d)`` to ``(B, 1, H, N, d)``: the image is the only window."""
        return x_BNHd.transpose(1, 2).unsqueeze(1)

    def from_windows(self, x_BWHNd: Tensor) -> Tensor:
        """Undoes :meth:`to_windows`."""
        return x_BWHNd.squeeze(1).transpose(1, 2)

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
