"""From images to tokens."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule
from mmcv.cnn.bricks.transformer import AdaptivePadding, PatchEmbed
from mmengine.model import BaseModule
from mmengine.utils import to_2tuple
from torch import Tensor, nn

from vitplug.attention.grids import ceil_div
from vitplug.compat import is_exporting
from vitplug.hosting import PixelGrid
from vitplug.plugs.checks import check_choice


def to_map(x_BND: Tensor, hw: Sequence[int]) -> Tensor:
    """Tokens ``(B, h * w, D)`` as a map ``(B, D, h, w)``, a view."""
    return x_BND.transpose(1, 2).unflatten(2, tuple(hw))


def to_tokens(x_BDhw: Tensor) -> Tensor:
    """A map ``(B, D, h, w)`` as tokens ``(B, h * w, D)``."""
    return x_BDhw.flatten(2).transpose(1, 2)


class Patches:
    """Which images an embedding takes, and where its tokens lie in them.

    Attributes:
        image_channels: Channels of the images.
        init_out_size: Rows and columns of tokens at the configured image size.
        adaptive_padding: mmcv's padding to whole patches, or None.
    """

    #: Pixels along a side that a stem before the patches makes one.
    STRIDE = 1
    #: Name of the last layer among the weights, which makes tokens of the embedding's width.
    projection_name = 'projection'
    image_channels: int
    init_out_size: tuple[int, int]
    adaptive_padding: AdaptivePadding | None

    def configure(self, img_size: int | Sequence[int], channels: int) -> None:
        """Notes the channels of the images and the tokens of those of a size.

        Raises:
            ValueError: If it is no size, or no patch fits into it.
        """
        size = size_of(img_size)
        self.check_size(size)
        self.image_channels, self.init_out_size = channels, self.pixels(size).hw

    @property
    def projection(self) -> nn.Module:
        return self._modules[self.projection_name]

    @property
    def image_stride(self) -> tuple[int, int]:
        """Pixels from one row, and from one column, of the tokens to the next."""
        rows, columns = self.projection.stride
        return rows * self.STRIDE, columns * self.STRIDE

    def check_images(self, images: Tensor) -> None:
        """As :meth:`~vitplug.hosting.places.Placed.check_images`."""
        if not isinstance(images, Tensor):
            raise ValueError(f'images: got a {type(images).__name__}; expected a tensor (B, C, H, W)')
        channels, dtype, device = self.image_channels, self.projection.weight.dtype, images.device.type
        if images.ndim != 4 or images.shape[1] != channels or 0 in images.shape:
            raise ValueError(
                f'images of shape {tuple(images.shape)}: expected (B, {channels}, H, W), none of them 0, by '
                f'in_channels={channels} of the backbone; load them with that many channels, or set in_channels'
            )
        if not images.is_floating_point():
            raise ValueError(f'images of {images.dtype}: expected {dtype}; normalise them, as a data_preprocessor does')
        casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        if images.dtype != dtype and not casts:
            raise ValueError(f'images of {images.dtype}, but weights of {dtype}: convert one of them, or use autocast')
        self.check_size(images.shape[-2:])

    def check_size(self, size: Sequence[int]) -> None:
        """Refuses an image ``(height, width)`` that is smaller, behind a stem, than one patch, where nothing pads it.

        Raises:
            ValueError: Names the sizes.
        """
        conv = self.projection
        sides = zip((ceil_div(side, self.STRIDE) for side in size), conv.padding, conv.kernel_size, strict=True)
        if self.adaptive_padding is None and any(side + 2 * pad < kernel for side, pad, kernel in sides):
            advice = ", or patch_cfg=dict(padding='corner')" if isinstance(self, PatchEmbed) else ''
            raise ValueError(
                f'image size {tuple(size)} is smaller than the patch size {tuple(conv.kernel_size)}: '
                f'use larger images or smaller patches{advice}'
            )

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        """Where the tokens lie in an image of ``(height, width)``."""
        return self.place(PixelGrid(tuple(image_size)))

    def place(self, pixels: PixelGrid) -> PixelGrid:
        """Where the tokens of a map lie in the image, of where the map does."""
        return after_padding(pixels, self.projection, self.adaptive_padding)


class OverlappingPatches(Patches, BaseModule):
    """Patches of an image, or of the map of the stage before, by one convolution, which alone says what is padded.

    As a :class:`~vitplug.hosting.Merge`, it takes tokens and their grid.

    Args:
        name: Name of the convolution among the weights.
        conv: The convolution.
        norm: The norm of the tokens; None for none.
    """

    adaptive_padding = None

    def __init__(self, name: str, conv: nn.Conv2d, norm: nn.Module | None = None):
        super().__init__()
        self.projection_name, self.stride = name, conv.stride
        self.add_module(name, conv)
        self.norm = norm

    def forward(self, x: Tensor, hw: tuple[int, int] | None = None) -> tuple[Tensor, tuple[int, int]]:
        """Images ``(B, C, H, W)``, or tokens ``(B, h * w, C)`` and their grid, to tokens ``(B, N, D)`` and theirs."""
        x_BDhw = self.projection(x if hw is None else to_map(x, hw))
        x_BND = to_tokens(x_BDhw)
        return (x_BND if self.norm is None else self.norm(x_BND)), tuple(x_BDhw.shape[2:])


class ImagePatches(Patches, PatchEmbed):
    """mmcv's patch embedding, of images."""


class ConvStem(ImagePatches):
    """Three small convolutions, the first halving the image, before patches of half the size.

    The stem of Refined-ViT-S/M/L: 7 x 7 with stride 2 to 32 channels, 3 x 3 to 64 and to 128, each with batch norm and
    ReLU. *Refiner: Refining Self-attention for Vision Transformers*, appendix B.1, has it as "more convs for patch
    embedding"; the layers follow the official code. It takes the arguments of mmcv's ``PatchEmbed``.

    Raises:
        ValueError: If a patch or its stride cannot be halved.
    """

    CHANNELS = (32, 64, 128)
    STRIDE = 2

    def __init__(self, in_channels: int, kernel_size, stride, input_size, **settings):
        kernel_size, stride = to_2tuple(kernel_size), to_2tuple(stride)
        if any(side % self.STRIDE for side in (*kernel_size, *stride)):
            raise ValueError(f"stem='conv' halves the image: patch size {kernel_size} and stride {stride} must be even")
        super().__init__(
            in_channels=self.CHANNELS[-1],
            kernel_size=_halved(kernel_size),
            stride=_halved(stride),
            input_size=_halved(to_2tuple(input_size)),
            **settings,
        )
        self.stem = nn.Sequential(
            _Convolution(in_channels, self.CHANNELS[0], 7, stride=self.STRIDE),
            *(_Convolution(narrow, wide, 3) for narrow, wide in pairwise(self.CHANNELS)),
        )

    def pixels(self, image_size: tuple[int, int]) -> PixelGrid:
        grid = PixelGrid(tuple(image_size))
        for conv in self.stem:
            grid = grid.after(conv.conv)
        return self.place(grid)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images ``(B, C, H, W)`` to tokens ``(B, N, D)`` and their grid ``(h, w)``."""
        return super().forward(self.stem(x))


class _Convolution(ConvModule):
    """mmcv's with batch norm, whose shift takes the place of a bias; it can be given its start again."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1):
        super().__init__(in_channels, out_channels, kernel, stride, kernel // 2, norm_cfg=dict(type='BN'))

    def reset_parameters(self) -> None:
        self.init_weights()


def _halved(size: Sequence[int]) -> tuple[int, ...]:
    return tuple(ceil_div(side, ConvStem.STRIDE) for side in size)


class WholePatches(AdaptivePadding):
    """mmcv's padding to whole patches. An exported graph always pads, if by 0, so that all sizes share it."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_exporting():
            return super().forward(x)
        below, beside = self.get_pad_shape(x.shape[-2:])
        above, before = (below // 2, beside // 2) if self.padding == 'same' else (0, 0)
        return F.pad(x, (before, beside - before, above, below - above))

    def get_pad_shape(self, input_shape: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of padding, as mmcv's, without fractions."""
        spans = [(side - 1) * space + 1 for side, space in zip(self.kernel_size, self.dilation, strict=True)]
        padding = (
            (ceil_div(side, stride) - 1) * stride + span - side
            for side, stride, span in zip(input_shape, self.stride, spans, strict=True)
        )
        # A window that is smaller than the stride may leave rows over; where it is not, no size decides.
        return tuple(
            more if span >= stride else max(more, 0)
            for more, span, stride in zip(padding, spans, self.stride, strict=True)
        )

    @classmethod
    def replace(cls, patches: nn.Module) -> None:
        """Puts it in the place of the padding of an embedding or a merging of patches."""
        padding = patches.adaptive_padding
        if padding is not None:
            patches.adaptive_padding = cls(padding.kernel_size, padding.stride, padding.dilation, padding.padding)


STEMS = {'patch': ImagePatches, 'conv': ConvStem}


def build_patch_embed(img_size: int | Sequence[int], settings: Mapping, stem: str = 'patch') -> ImagePatches:
    """The patch embedding, mmcv's, or the one behind a convolutional stem.

    Raises:
        ValueError: If the stem is unknown or no patch fits into the image.
    """
    check_choice('stem', stem, tuple(STEMS))
    size_of(settings['kernel_size'], 'patch_size')
    embed = STEMS[stem](input_size=size_of(img_size), **settings)
    WholePatches.replace(embed)
    embed.configure(img_size, settings['in_channels'])
    return embed


def size_of(size: int | Sequence[int], name: str = 'img_size') -> tuple[int, int]:
    """Height and width, from a positive integer or a pair of them.

    Raises:
        ValueError: If it is neither.
    """
    pair = (size, size) if isinstance(size, int) else size
    if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(s, int) and s > 0 for s in pair):
        raise ValueError(f'{name}={size!r}: expected a positive integer or a pair of them')
    return tuple(pair)


def after_padding(grid: PixelGrid, window: nn.Conv2d | nn.Unfold, padding: AdaptivePadding | None) -> PixelGrid:
    """The grid after a convolution or an unfolding of a map that is padded to whole windows; None pads nothing."""
    if padding is None:
        return grid.after(window)
    return grid.after(window, padding.get_pad_shape(grid.hw), padding.padding == 'same')
