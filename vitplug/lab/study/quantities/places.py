"""Where the queries and the keys of a block lie in the image."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitplug.attention import Layout, Site
from vitplug.hosting import PixelGrid, PluggedModel
from vitplug.hosting.pixels import check_fit, check_image_size, check_name


@dataclass(frozen=True)
class Slots:
    """What lies in the slots of one layout: ``W`` windows of ``N`` tokens. A slot holds a patch, a prefix or padding.

    Attributes:
        patch: ``(W, N)``, index of the patch in reading order; -1 for prefix tokens and padding.
        is_prefix: ``(W, N)``, True for prefix tokens, such as the class token.
        row: ``(W, N)``, row of the patch on the map; 0 where there is none.
        column: ``(W, N)``, the same of the column.
    """

    patch: Tensor
    is_prefix: Tensor
    row: Tensor
    column: Tensor

    @classmethod
    def of(cls, layout: Layout) -> 'Slots':
        """The slots of a layout."""
        height, width = layout.hw
        # Numbers from 1 on: to_windows fills padding with 0.
        numbers_N = torch.arange(1, layout.num_prefix + height * width + 1, dtype=torch.float64)
        numbers_WN = layout.to_windows(numbers_N[None, :, None])[0, :, :, 0].long()
        patch_WN = (numbers_WN - 1 - layout.num_prefix).clamp(min=-1)
        known_WN = patch_WN.clamp(min=0)
        return cls(
            patch=patch_WN,
            is_prefix=(numbers_WN > 0) & (patch_WN < 0),
            row=known_WN // width,
            column=known_WN % width,
        )

    @cached_property
    def of_patches(self) -> tuple[Tensor, Tensor]:
        """``(h * w,)`` each: the window and the slot inside it of every patch."""
        windows, slots = self.is_patch.nonzero(as_tuple=True)
        order = self.patch[windows, slots].argsort()
        return windows[order], slots[order]

    @property
    def is_patch(self) -> Tensor:
        """``(W, N)``, True for patches."""
        return self.patch >= 0

    @property
    def is_token(self) -> Tensor:
        """``(W, N)``, True for patches and prefix tokens, False for padding."""
        return self.is_patch | self.is_prefix


@dataclass(frozen=True)
class Place:
    """Where the queries and the keys of one block lie in images of one size.

    Attributes:
        layout: How the queries lie in windows.
        pixels: Where the map of queries lies in the image.
        key_layout: The same of the keys.
        key_pixels: The same of the keys.
        image_size: Height and width of the images in pixels.
        prefix_names: Names of the host's prefix tokens, which come first, such as ``'cls_token'``.
    """

    layout: Layout
    pixels: PixelGrid
    key_layout: Layout
    key_pixels: PixelGrid
    image_size: tuple[int, int]
    prefix_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, backbone: PluggedModel, layer: int, image_size: tuple[int, int], name: str = 'probs') -> 'Place':
        """The place of a block.

        Args:
            backbone: The backbone.
            layer: Block index through all stages.
            image_size: Height and width in pixels of the images that the backbone is given.
            name: Which of the block's maps: those of plugs are of the last block and lie in one window.

        Raises:
            ValueError: If ``image_size`` is no pair of positive integers, the backbone has no such block, or ``name``
                is that of no maps.
        """
        size = check_image_size(image_size)
        check_name(name)
        count = len(backbone.plugged_blocks())
        if not 0 <= layer < count:
            raise ValueError(f'layer={layer}: this backbone has blocks 0 to {count - 1}')
        (layout, pixels), (key_layout, key_pixels) = backbone.place_maps(layer, size, name)
        prefix_names = tuple(backbone.prefix_names) if layout.num_prefix else ()
        return cls(layout, pixels, key_layout, key_pixels, size, prefix_names)

    @cached_property
    def queries(self) -> Slots:
        """What lies in the slots of the queries."""
        return Slots.of(self.layout)

    @cached_property
    def keys(self) -> Slots:
        """What lies in the slots of the keys."""
        return self.queries if self.key_layout == self.layout else Slots.of(self.key_layout)

    @property
    def site(self) -> Site:
        """The place as plugs see it."""
        return Site(self.layout, self.key_layout)

    @property
    def one_grid(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.layout == self.key_layout

    def check(self, maps_BWHNN: Tensor) -> None:
        """Checks that maps are of this place.

        Raises:
            ValueError: If they are of other windows or tokens, or do not have five axes.
        """
        if maps_BWHNN.ndim != 5:
            raise ValueError(
                f'maps of shape {tuple(maps_BWHNN.shape)}: expected (B, W, H, Nq, Nk), as forward_intermediates '
                'records them'
            )
        check_fit(maps_BWHNN, self.layout, self.key_layout, 'maps', self.image_size)
