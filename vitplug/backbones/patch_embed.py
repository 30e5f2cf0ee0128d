"""From images to tokens."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch.nn.functional as F
from mmcv.cnn import ConvModule
from mmcv.cnn.bricks.transformer import AdaptivePadding, PatchEmbed
from mmengine.utils import to_2tuple
from torch import Tensor, nn

from vitplug.attention.grids import ceil_div
from vitplug.compat import is_exporting
from vitplug.hosting import PixelGrid

from .checks import WRONG_SETTINGS


class ConvStem(PatchEmbed):
    """Three small convolutions, the first halving the image, before patches of half the size.

    The stem of Refined-ViT-S/M/L: 7 x 7 with stride 2 to 32 channels, 3 x 3 to 64 and to 128, each with batch norm and
    ReLU. *Refiner: Refining Self-attention for Vision Transformers*, appendix B.1, has it as "more convs for patch
    embedding"; the layers follow the official code.

    Args:
        in_channels: Channels of the images.
        kernel_size: Side of a patch in pixels, even.
        stride: Distance of patches in pixels, even.
        input_size: Image size the tokens are counted for.
        settings: Further arguments of mmcv's ``PatchEmbed``.

    Raises:
        ValueError: If a patch cannot be halved.
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
            _conv(in_channels, self.CHANNELS[0], 7, stride=self.STRIDE),
            *(_conv(narrow, wide, 3) for narrow, wide in pairwise(self.CHANNELS)),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images ``(B, C, H, W)`` to tokens ``(B, N, D)`` and their grid ``(h, w)``."""
        return super().forward(self.stem(x))


class _Convolution(ConvModule):
    """mmcv's, which can be given its start again."""

    def reset_parameters(self) -> None:
        self.init_weights()


def _conv(in_channels: int, out_channels: int, kernel_size: int, stride: int = 1) -> ConvModule:
    # The batch norm's shift takes the place of a bias.
    return _Convolution(
        in_channels, out_channels, kernel_size, stride, padding=kernel_size // 2, norm_cfg=dict(type='BN')
    )


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


STEMS = {'patch': PatchEmbed, 'conv': ConvStem}


def build_patch_embed(img_size: int | Sequence[int], settings: Mapping, stem: str = 'patch') -> PatchEmbed:
    """The patch embedding, mmcv's, or the one behind a convolutional stem.

    Raises:
        ValueError: If the stem is unknown or no patch fits into the image.
    """
    if not isinstance(stem, str) or stem not in STEMS:
        raise ValueError(f'stem={stem!r}: expected one of {list(STEMS)}')
    sizes = (img_size, settings['kernel_size'], settings['stride'])
    if not all(is_size(size) for size in sizes):
        raise ValueError(
            f'img_size={img_size!r}, patch size {settings["kernel_size"]!r}, stride {settings["stride"]!r}: '
            'expected positive integers or pairs of them'
        )
    try:
        embed = STEMS[stem](input_size=img_size, **settings)
    except WRONG_SETTINGS as error:
        raise ValueError(f'patch_cfg: {settings} makes no patch embedding: {error}') from error
    WholePatches.replace(embed)
    embed.image_channels = settings['in_channels']
    embed.image_stride = to_2tuple(settings['stride'])
    check_patches(embed, to_2tuple(img_size))
    return embed


def is_size(size) -> bool:
    """Whether this is a positive integer, or a pair of them."""
    pair = (size, size) if isinstance(size, int) else size
    return isinstance(pair, Sequence) and len(pair) == 2 and all(isinstance(s, int) and s > 0 for s in pair)


def check_patches(embed: PatchEmbed, size: Sequence[int]) -> None:
    """Refuses an image that is smaller than one patch where the patch embedding does not pad.

    Raises:
        ValueError: Names the sizes.
    """
    conv = embed.projection
    if embed.adaptive_padding is not None:
        return
    seen = _halved(size) if isinstance(embed, ConvStem) else size
    room = [side + 2 * pad for side, pad in zip(seen, conv.padding, strict=True)]
    if any(side < kernel for side, kernel in zip(room, conv.kernel_size, strict=True)):
        raise ValueError(
            f'image size {tuple(size)} is smaller than the patch size {tuple(conv.kernel_size)}: '
            "use larger images, smaller patches or patch_cfg=dict(padding='corner')"
        )


def pixels_of(embed: PatchEmbed, image_size: tuple[int, int]) -> PixelGrid:
    """Where the tokens of a patch embedding lie in an image of ``(height, width)``."""
    grid = PixelGrid(tuple(image_size))
    for conv in embed.stem if isinstance(embed, ConvStem) else ():
        grid = grid.after(conv.conv)
    return after_padding(grid, embed.projection, embed.adaptive_padding)


def after_padding(grid: PixelGrid, window: nn.Conv2d | nn.Unfold, padding: AdaptivePadding | None) -> PixelGrid:
    """The grid after a convolution or an unfolding of a map that is padded to whole windows; None pads nothing."""
    if padding is None:
        return grid.after(window)
    return grid.after(window, padding.get_pad_shape(grid.hw), padding.padding == 'same')
