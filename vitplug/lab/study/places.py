"""Where the queries and the keys of a block lie in the image, and maps of windows on its grid.

Recorded maps are ``(B, W, H, Nq, Nk)``: B images, W windows, H heads.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention import Layout
from vitplug.hosting import PixelGrid, PluggedModel
from vitplug.hosting.maps import check_fit


@dataclass(frozen=True)
class Slots:
    """What lies in the slots of one layout: ``W`` windows of ``N`` tokens. A slot holds a patch, a prefix or padding.

    Attributes:
        patch: ``(W, N)``, index of the patch in reading order; -1 for prefix tokens and padding.
        is_patch, is_token: ``(W, N)``, True for patches, and for patches and prefix tokens.
        row, column: ``(W, N)``, place of the patch on the map; of no meaning where there is none.
    """

    patch: Tensor
    is_patch: Tensor
    is_token: Tensor
    row: Tensor
    column: Tensor

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, layout: Layout) -> 'Slots':
        height, width = layout.hw
        # Numbers from 1 on: to_windows fills padding with 0.
        numbers_N = torch.arange(1, layout.num_prefix + height * width + 1, dtype=torch.float64)
        numbers_WN = layout.to_windows(numbers_N[None, :, None])[0, :, :, 0].long()
        patch_WN = (numbers_WN - 1 - layout.num_prefix).clamp(min=-1)
        return cls(patch_WN, patch_WN >= 0, numbers_WN > 0, patch_WN // width, patch_WN % width)


@dataclass(frozen=True)
class Place:
    """Where the queries and the keys of one block lie in images of one size.

    Attributes:
        layout, pixels: How the queries lie in windows, and their map in the image.
        key_layout, key_pixels: The same of the keys.
        image_size: Height and width of the images in pixels.
    """

    layout: Layout
    pixels: PixelGrid
    key_layout: Layout
    key_pixels: PixelGrid
    image_size: tuple[int, int]

    @classmethod
    def of(cls, backbone: PluggedModel, layer: int, image_size: tuple[int, int]) -> 'Place':
        (layout, pixels), (key_layout, key_pixels) = backbone.place_maps(layer, image_size)
        return cls(layout, pixels, key_layout, key_pixels, image_size)

    @property
    def queries(self) -> Slots:
        return Slots.of(self.layout)

    @property
    def keys(self) -> Slots:
        return Slots.of(self.key_layout)

    @property
    def grids(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and columns of the queries' map and of the keys'."""
        return self.layout.hw, self.key_layout.hw

    def check(self, maps_BWHNN: Tensor) -> None:
        """Raises a ValueError if maps are of other windows or tokens."""
        check_fit(maps_BWHNN, self.layout, self.key_layout, 'maps', self.image_size)


def to_image(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """The attention of patches to patches ``(B, H, nq, h, w)``, windows, shift and padding undone.

    Queries are in reading order, and h and w the map of keys; 0 outside of the query's window.
    """
    place.check(maps_BWHNN)
    # The first class collects what is no patch, and is cut off.
    patches_WNK = F.one_hot(place.keys.patch + 1, prod(place.key_layout.hw) + 1)[..., 1:].to(maps_BWHNN)
    rows_BWNHK = torch.einsum('bwhqk,wkp->bwqhp', maps_BWHNN, patches_WNK)
    rows_BND = place.layout.from_windows(rows_BWNHK.flatten(3))[:, place.layout.num_prefix :]
    return rows_BND.unflatten(2, (-1, *place.key_layout.hw)).transpose(1, 2)


def dense_maps(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """The attention of all tokens to all tokens, ``(B, H, Nq, Nk)``: prefix tokens first, then patches by rows."""
    place.check(maps_BWHNN)
    return to_image(maps_BWHNN, place).flatten(3) if place.layout.is_windowed else maps_BWHNN[:, 0]
