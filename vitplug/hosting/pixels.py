"""From tokens back to pixels: where the tokens of a block lie in the image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitplug.attention.grids import ceil_div


@dataclass(frozen=True)
class PixelGrid:
    """A grid of tokens on an image. Token ``(i, j)`` covers the pixels from ``start + stride * (i, j)`` on.

    Args:
        hw: Rows and columns of tokens.
        stride: Pixels from one row, and from one column, to the next.
        start: Pixel at which the first row, and the first column, begin; below 0 where padding comes first.
    """

    hw: tuple[int, int]
    stride: tuple[float, float] = (1, 1)
    start: tuple[float, float] = (0, 0)

    def after(
        self, window: nn.Conv2d | nn.Unfold, extra: tuple[int, int] = (0, 0), around: bool = False
    ) -> 'PixelGrid':
        """The grid after a convolution or an unfolding: each token stands for the middle of its window.

        Args:
            window: The convolution or the unfolding.
            extra: Rows and columns of padding that make whole windows of the image.
            around: Whether half of them come before the image; all of them after it otherwise.
        """
        padding = (0, 0) if window.padding == 'valid' else window.padding
        settings = (window.kernel_size, window.stride, window.dilation, padding)
        counts, strides, starts = [], [], []
        for axis, (kernel, step, dilation, pad) in enumerate(zip(*map(pair, settings), strict=True)):
            span = dilation * (kernel - 1) + 1
            before = pad + (extra[axis] // 2 if around else 0)
            counts.append((self.hw[axis] + extra[axis] + 2 * pad - span) // step + 1)
            strides.append(self.stride[axis] * step)
            starts.append(self.start[axis] + self.stride[axis] * ((span - step) / 2 - before))
        return PixelGrid((counts[0], counts[1]), (strides[0], strides[1]), (starts[0], starts[1]))

    def every(self, step: int) -> 'PixelGrid':
        """The grid of every ``step``-th token along both axes from the first on, which stays where it is."""
        merged, back = self.merged(step), (step - 1) / 2
        start = (self.start[0] - self.stride[0] * back, self.start[1] - self.stride[1] * back)
        return PixelGrid(merged.hw, merged.stride, start)

    def merged(self, step: int) -> 'PixelGrid':
        """The grid of squares of ``step x step`` tokens, from the first on."""
        hw = ceil_div(self.hw[0], step), ceil_div(self.hw[1], step)
        return PixelGrid(hw, (self.stride[0] * step, self.stride[1] * step), self.start)

    def token_at(self, pixel: Sequence[int], image_size: tuple[int, int]) -> int:
        """Index, in reading order, of the token that covers a pixel ``(y, x)``."""
        row, column = (int(index[p]) for index, p in zip(self._tokens_of(image_size), pixel, strict=True))
        return row * self.hw[1] + column

    def to_image(self, maps: Tensor, image_size: tuple[int, int]) -> Tensor:
        """A value of each token ``(..., h, w)`` as one of each pixel ``(..., height, width)``; padding is cut off."""
        rows, columns = (index.to(maps.device) for index in self._tokens_of(image_size))
        return maps[..., rows[:, None], columns]

    def _tokens_of(self, image_size: tuple[int, int]) -> list[Tensor]:
        """The row of tokens of each row of pixels, and the column of each column; the nearest at the edges."""
        axes = zip(image_size, self.start, self.stride, self.hw, strict=True)
        return [
            ((torch.arange(side) + 0.5 - start) / stride).floor().long().clamp(0, count - 1)
            for side, start, stride, count in axes
        ]


def pair(setting: Any) -> tuple[int, int]:
    """A setting of a convolution or an unfolding along both axes."""
    rows, columns = (setting, setting) if isinstance(setting, int) else setting
    return rows, columns
