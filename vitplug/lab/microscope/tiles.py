"""Maps as tiles of 8 bit, and where they lie in the image.

A tile has the attention of one query in one head to the keys of the grid, or of the query's window. Its values are
``low + code * step`` with ``step = (high - low) / 255``, ``high`` the largest value of the tile and ``low`` its
smallest, at most 0: a value is off by half a step at most. Attention to keys before the grid, such as the class token,
which often is far larger, is kept beside it as it is.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from vitplug.attention import Layout
from vitplug.attention.grids import ceil_div
from vitplug.hosting import PixelGrid
from vitplug.lab.study.places import Place

STEPS = 255


@dataclass(frozen=True)
class Geometry:
    """What the tiles of one block show.

    Args:
        heads: Number of heads.
        queries: Where the grid of the queries lies in the image.
        keys: The same of the keys.
        prefix: Tokens before the grid: of the queries, and of the keys.
        step: Rows, and columns, from one kept query to the next.
        window: Sides of the windows of queries and of keys; 0 where a query sees all keys.
        shift: Tokens by which windows are shifted.
        padded: Rows and columns that make whole windows, of queries and of keys.
    """

    heads: int
    queries: PixelGrid
    keys: PixelGrid
    prefix: tuple[int, int] = (0, 0)
    step: int = 1
    window: tuple[int, int] = (0, 0)
    shift: int = 0
    padded: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))


@dataclass(frozen=True, eq=False)
class Tiles:
    """The tiles of one block.

    Args:
        geometry: What they show.
        codes: ``(H, queries, cells)`` of uint8.
        numbers: Of each tile ``low``, ``step`` and the values of the keys before the grid, ``(H, queries, 2 + prefix)``
            of float32.
    """

    geometry: Geometry
    codes: np.ndarray
    numbers: np.ndarray

    def equals(self, other: 'Tiles') -> bool:
        return np.array_equal(self.codes, other.codes) and np.array_equal(self.numbers, other.numbers)

    def as_json(self) -> dict:
        """The geometry, with the lengths of the axes of the codes."""
        return {**asdict(self.geometry), 'num_queries': self.codes.shape[1], 'num_cells': self.codes.shape[2]}


def encode(values: Tensor, geometry: Geometry) -> Tiles:
    """Tiles of values ``(H, queries, prefix + cells)``.

    Raises:
        ValueError: If the values are not finite.
    """
    if not values.isfinite().all():
        raise ValueError('a map has values that are not finite (NaN or infinity): has the training diverged?')
    prefix, values = values.double().tensor_split([geometry.prefix[1]], -1)
    low, high = values.amin(-1, keepdim=True).clamp(max=0), values.amax(-1, keepdim=True)
    # Float32 as it is stored; 0 for a constant, so that nothing is divided by it.
    low, step = low.float().double(), ((high - low) / STEPS).clamp(min=0).float().double()
    codes = ((values - low) / step.where(step > 0, torch.ones(()).double())).round().clamp(0, STEPS)
    return Tiles(geometry, codes.byte().cpu().numpy(), torch.cat((low, step, prefix), -1).float().cpu().numpy())


def attention_tiles(maps: Tensor, place: Place, most_queries: int) -> Tiles:
    """Tiles of a block's maps ``(1, W, H, Nq, Nk)`` of one image.

    Args:
        maps: Attention maps as recorded.
        place: Where queries and keys lie.
        most_queries: Most queries along one side: of larger grids every 2nd, 3rd ... row and column is kept.
    """
    layout, key_layout = place.layout, place.key_layout
    sides, window = (layout, key_layout), {}
    if layout.is_windowed:
        window = dict(window=tuple(one.window for one in sides), padded=tuple(tuple(one.padded) for one in sides))
    geometry = Geometry(
        heads=maps.shape[2],
        queries=place.pixels,
        keys=place.key_pixels,
        prefix=(layout.num_prefix, key_layout.num_prefix),
        step=ceil_div(max(layout.hw), most_queries),
        shift=layout.shift if layout.is_windowed else 0,
        **window,
    )
    return encode(rows_of(maps, layout, kept_queries(layout.hw, geometry.step)), geometry)


def kept_queries(hw: Sequence[int], step: int) -> Tensor:
    """Index, in reading order, of the kept queries of a grid: the middle ones of squares of ``step`` tokens."""
    rows, columns = ((torch.arange(ceil_div(side, step)) * step + (step - 1) // 2).clamp(max=side - 1) for side in hw)
    return (rows[:, None] * hw[1] + columns).flatten()


def rows_of(maps: Tensor, layout: Layout, kept: Tensor) -> Tensor:
    """The rows of some queries, ``(H, queries, Nk)``, prefix tokens first.

    Args:
        maps: ``(1, W, H, Nq, Nk)``.
        layout: How the queries lie in windows.
        kept: Index of queries on the grid.
    """
    kept = kept.to(maps.device)
    if layout.is_windowed:
        slots, size = layout.slots(maps.device).places[kept], layout.grid.num_tokens
        return maps[0, slots // size, :, slots % size].transpose(0, 1)
    prefix = torch.arange(layout.num_prefix, device=maps.device)
    return maps[0, 0][:, torch.cat((prefix, layout.num_prefix + kept))]
