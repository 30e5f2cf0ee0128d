"""Maps as tiles of 8 bit: which queries and keys are kept, how they are coded, and how many fit into a budget.

A tile has the attention of one query in one head to the keys of the grid, or of the query's window. Its values are
``low + code * step`` with ``step = (high - low) / 255``, ``high`` the largest value of the tile and ``low`` its
smallest, at most 0: a value is off by half a step at most. Attention to keys before the grid, such as the class token,
which often is far larger, is kept beside it as it is.
"""

import base64
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention import Layout
from vitplug.attention.grids import ceil_div
from vitplug.hosting import PixelGrid
from vitplug.lab.study.quantities.places import Place

STEPS = 255
#: Most cells along one side of a map that has no queries.
LARGEST_MAP = 128
#: Smallest grid of queries or keys that a level may have, by side.
SMALLEST_SIDE = 3
#: From one level to the next, the product of query step and pool grows at least this much.
LEVEL_RATIO = 1.2
#: Codes of this many times the budget are not compressed to see whether they fit.
BEST_COMPRESSION = 12


class OverBudget(ValueError):
    """Not even the fewest queries and keys fit."""


@dataclass(frozen=True)
class Level:
    """How much of the maps is kept.

    Args:
        queries: Most queries along one side of a grid: of larger grids, every 2nd, 3rd ... row and column.
        keys: Most cells along one side of a grid or window of keys: larger ones keep means of 2 x 2, 3 x 3 ... keys.
    """

    queries: int
    keys: int

    def query_step(self, hw: Sequence[int]) -> int:
        """Rows, and columns, from one kept query to the next."""
        return ceil_div(max(hw), self.queries)

    def pool(self, hw: Sequence[int]) -> int:
        """Rows, and columns, of keys in one cell."""
        return ceil_div(max(hw), self.keys)


def levels(query_side: int, key_side: int) -> list[Level]:
    """Levels from all queries and keys to few; queries are thinned out first, being more alike than keys.

    Args:
        query_side: Longest side of any grid of queries.
        key_side: The same of the grids, or windows, of keys.
    """
    steps, pools = (_factors(side) for side in (query_side, key_side))
    # Steps and pools grow together, but queries go on where keys cannot be fewer.
    pairs = [(step, pool) for step in steps for pool in pools if pool <= step <= pool + 2 or pool == pools[-1] < step]
    finest_first, last = [Level(query_side, key_side)], 1
    for step, pool in sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[0])):
        if step * pool >= LEVEL_RATIO * last:
            finest_first.append(Level(ceil_div(query_side, step), ceil_div(key_side, pool)))
            last = step * pool
    return finest_first


def _factors(side: int) -> list[int]:
    """Factors by which a side can be thinned out, each to another length."""
    lengths = {ceil_div(side, factor): factor for factor in range(side, 0, -1)}
    return sorted(factor for length, factor in lengths.items() if length >= min(side, SMALLEST_SIDE))


@dataclass(frozen=True)
class Plane:
    """A grid of tokens and where it lies in the image, see :class:`~vitplug.hosting.pixels.PixelGrid`."""

    hw: tuple[int, int]
    start: tuple[float, float]
    stride: tuple[float, float]

    @classmethod
    def of(cls, pixels: PixelGrid) -> 'Plane':
        return cls(*(tuple(pair) for pair in (pixels.hw, pixels.start, pixels.stride)))


@dataclass(frozen=True)
class Geometry:
    """What the tiles of one block show.

    Args:
        heads: Number of heads, 1 for maps that have none.
        queries: Grid of the queries; None for one map of the whole image.
        keys: Grid of the keys.
        prefix: Tokens before the grid: of the queries, and of the keys.
        step: Rows, and columns, from one kept query to the next.
        pool: Rows, and columns, of keys in one cell, whose mean is kept.
        window: Side of the window of keys that a query sees; 0 for all keys.
        shift: Tokens by which windows are shifted.
        padded: Rows and columns that make whole windows.
    """

    heads: int
    queries: Plane | None
    keys: Plane
    prefix: tuple[int, int] = (0, 0)
    step: int = 1
    pool: int = 1
    window: int = 0
    shift: int = 0
    padded: tuple[int, int] = (0, 0)

    @property
    def num_queries(self) -> int:
        if self.queries is None:
            return 1
        return self.prefix[0] + math.prod(ceil_div(side, self.step) for side in self.queries.hw)

    @property
    def cell_hw(self) -> tuple[int, int]:
        """Rows and columns of cells in a tile."""
        hw = (self.window, self.window) if self.window else self.keys.hw
        return tuple(ceil_div(side, self.pool) for side in hw)

    @property
    def num_cells(self) -> int:
        return math.prod(self.cell_hw)


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

    def values(self) -> np.ndarray:
        """What the tiles stand for, ``(H, queries, prefix + cells)``."""
        low, step, prefix = np.split(self.numbers, (1, 2), -1)
        return np.concatenate((prefix, low + self.codes * step), -1)


def encode(values: Tensor, geometry: Geometry) -> Tiles:
    """Tiles of values ``(H, queries, prefix + cells)``.

    Raises:
        ValueError: If the values are not finite, or not as many as the geometry has.
    """
    expected = (geometry.heads, geometry.num_queries, geometry.prefix[1] + geometry.num_cells)
    if tuple(values.shape) != expected:
        raise ValueError(f'tiles of shape {tuple(values.shape)}: expected {expected}')
    if not values.isfinite().all():
        raise ValueError('a map has values that are not finite (NaN or infinity): has the training diverged?')
    prefix, values = values.double().tensor_split([geometry.prefix[1]], -1)
    low, high = values.amin(-1, keepdim=True).clamp(max=0), values.amax(-1, keepdim=True)
    # Float32 as it is stored; 0 for a constant, so that nothing is divided by it.
    low, step = low.float().double(), ((high - low) / STEPS).clamp(min=0).float().double()
    codes = ((values - low) / step.where(step > 0, torch.ones(()).double())).round().clamp(0, STEPS)
    return Tiles(geometry, codes.byte().cpu().numpy(), torch.cat((low, step, prefix), -1).float().cpu().numpy())


# --- attention maps ---


def kept_queries(hw: Sequence[int], step: int) -> Tensor:
    """Index, in reading order, of the kept queries of a grid: the middle ones of squares of ``step`` tokens."""
    rows, columns = (_kept(side, step) for side in hw)
    return (rows[:, None] * hw[1] + columns).flatten()


def _kept(side: int, step: int) -> Tensor:
    return (torch.arange(ceil_div(side, step)) * step + (step - 1) // 2).clamp(max=side - 1)


def attention_tiles(maps: Tensor, place: Place, level: Level) -> Tiles:
    """Tiles of a block's maps ``(1, W, H, Nq, Nk)``, at a level.

    Args:
        maps: Attention maps as recorded, of one image.
        place: Where queries and keys lie.
        level: How much is kept.
    """
    layout, key_layout = place.layout, place.key_layout
    step = level.query_step(layout.hw)
    pool = level.pool(key_layout.grid.hw)
    geometry = Geometry(
        heads=maps.shape[2],
        queries=Plane.of(place.pixels),
        keys=Plane.of(place.key_pixels),
        prefix=(layout.num_prefix, key_layout.num_prefix),
        step=step,
        pool=pool,
        **_window_of(layout),
    )
    rows = rows_of(maps, layout, kept_queries(layout.hw, step))
    return encode(pool_keys(rows, key_layout, pool), geometry)


def _window_of(layout: Layout) -> dict:
    if not layout.is_windowed:
        return {}
    return dict(window=layout.window, shift=layout.shift, padded=tuple(layout.padded))


def rows_of(maps: Tensor, layout: Layout, kept: Tensor) -> Tensor:
    """The rows of some queries, ``(H, queries, Nk)``, prefix tokens first.

    Args:
        maps: ``(1, W, H, Nq, Nk)``.
        layout: How the queries lie in windows.
        kept: Index of queries on the grid.
    """
    kept = kept.to(maps.device)
    if layout.is_windowed:
        slots, size = layout.slots(maps.device)[0][kept], layout.grid.num_tokens
        return maps[0, slots // size, :, slots % size].transpose(0, 1)
    prefix = torch.arange(layout.num_prefix, device=maps.device)
    return maps[0, 0][:, torch.cat((prefix, layout.num_prefix + kept))]


def pool_keys(rows: Tensor, key_layout: Layout, pool: int) -> Tensor:
    """Means over squares of keys: ``(H, queries, Nk)`` to ``(H, queries, cells)``; prefix tokens stay as they are."""
    if pool == 1:
        return rows
    prefix, grid = rows.tensor_split([key_layout.num_prefix], -1)
    cells = F.avg_pool2d(grid.unflatten(-1, key_layout.grid.hw), pool, ceil_mode=True)
    return torch.cat((prefix, cells.flatten(-2)), -1)


def image_tiles(values: Tensor, pixels: PixelGrid) -> Tiles:
    """The tile of one map of the whole image ``(h, w)``, a value for each token; means of squares of large maps."""
    pool = ceil_div(max(pixels.hw), LARGEST_MAP)
    cells = F.avg_pool2d(values[None], pool, ceil_mode=True) if pool > 1 else values[None]
    return encode(cells.flatten()[None, None], Geometry(heads=1, queries=None, keys=Plane.of(pixels), pool=pool))


# --- packing ---


@dataclass(frozen=True)
class Packed:
    """Tiles of all blocks of one kind, deflated.

    Args:
        data: Codes of all blocks, zeros up to a multiple of 4, numbers of all blocks; deflated (zlib).
        size: Bytes of the codes with these zeros: where the numbers begin.
        blocks: By block, its geometry, and where its codes (in bytes) and its numbers begin; None for a block without
            tiles.
    """

    data: bytes
    size: int
    blocks: tuple[tuple[Geometry, int, int] | None, ...]


def pack(tiles: Sequence[Tiles | None]) -> Packed:
    """Deflates the tiles of all blocks."""
    blocks, codes_at, numbers_at = [], 0, 0
    for tile in tiles:
        blocks.append(None if tile is None else (tile.geometry, codes_at, numbers_at))
        codes_at += 0 if tile is None else tile.codes.size
        numbers_at += 0 if tile is None else tile.numbers.size
    present = [tile for tile in tiles if tile is not None]
    codes = b''.join(tile.codes.tobytes() for tile in present)
    codes += bytes(-len(codes) % 4)
    numbers = b''.join(tile.numbers.astype('<f4').tobytes() for tile in present)
    return Packed(zlib.compress(codes + numbers, 9), len(codes), tuple(blocks))


def encoded_size(data: bytes) -> int:
    """Length of the data in base64."""
    return 4 * ceil_div(len(data), 3)


class Shelf:
    """All tiles of a report, at every level that may still fit into its budget.

    The tiles of an image are packed at each level as they come, so that the level is chosen by sizes as they are, and
    no map is kept. A level is dropped as soon as its tiles exceed the budget.

    Args:
        choices: Levels from much to little.
        budget: Bytes for the tiles in base64.
    """

    def __init__(self, choices: Sequence[Level], budget: int):
        self.budget = budget
        self.packed: dict[Level, dict[str, Packed]] = {level: {} for level in choices}

    @property
    def open_levels(self) -> list[Level]:
        """The levels that may still fit, from much to little."""
        return list(self.packed)

    def add(self, name: str, tiles: Mapping[Level, Sequence[Tiles | None]]) -> None:
        """Packs the tiles of all blocks under a name.

        Args:
            name: Name of the tiles.
            tiles: By level, at least by all that are open; by block.

        Raises:
            OverBudget: If they fit at no level.
        """
        for level in self.open_levels:
            raw = sum(tile.codes.size for tile in tiles[level] if tile is not None)
            if raw > BEST_COMPRESSION * self.budget:
                self._drop(level)
                continue
            self.packed[level][name] = pack(tiles[level])
            if self.size(level) > self.budget:
                self._drop(level)

    def size(self, level: Level) -> int:
        """Bytes of all tiles of a level in base64."""
        return sum(encoded_size(packed.data) for packed in self.packed[level].values())

    def _drop(self, level: Level) -> None:
        if len(self.packed) == 1:
            raise OverBudget(
                f'{max(0, self.budget):,} bytes are left for maps, too few even for {level.queries} x {level.queries} '
                f'queries with {level.keys} x {level.keys} keys: take fewer images, or allow a larger file'
            )
        del self.packed[level]

    def shrink_to(self, budget: int) -> None:
        """Drops the levels that do not fit into a smaller budget.

        Raises:
            OverBudget: If none does.
        """
        self.budget = min(self.budget, budget)
        for level in self.open_levels:
            if self.size(level) > self.budget:
                self._drop(level)

    def choose(self) -> dict[str, Packed]:
        """Tiles by name, at the level with most queries and keys that fits."""
        return self.packed[self.open_levels[0]]


# --- as the page reads them ---


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode('ascii')


def geometry_table(packed: Mapping[str, Packed]) -> tuple[list[dict], dict[str, dict]]:
    """Geometries without repetition, and by name of tiles where the numbers begin and what each block has.

    Returns:
        The geometries, and ``{name: {'numbers': first byte, 'blocks': [[geometry, codes, numbers] or None]}}``.
    """
    places: dict[Geometry, int] = {}
    entries = {
        name: dict(
            numbers=pack_.size,
            blocks=[block and [places.setdefault(block[0], len(places)), *block[1:]] for block in pack_.blocks],
        )
        for name, pack_ in packed.items()
    }
    return [_as_json(geometry) for geometry in places], entries


def _as_json(geometry: Geometry) -> dict:
    return {**asdict(geometry), 'num_queries': geometry.num_queries, 'num_cells': geometry.num_cells}


def json_text(content: object) -> str:
    """JSON for a script element: nothing in it ends the element. Numbers that are not finite become null."""
    return json.dumps(_finite(content), ensure_ascii=False, separators=(',', ':')).replace('<', '\\u003c')


def _finite(content: object) -> object:
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def sampling_sentences(packed: Mapping[str, Packed]) -> Iterator[str]:
    """What is kept of the attention maps, and what is not, in words."""
    geometries = {block[0] for pack_ in packed.values() for block in pack_.blocks if block and block[0].queries}
    for what, key in (('queries', 'step'), ('keys', 'pool')):
        factors = sorted({getattr(geometry, key) for geometry in geometries})
        if factors:
            yield _sentence(what, factors)


def _sentence(what: str, factors: Sequence[int]) -> str:
    if factors == [1]:
        return f'All {what} are stored.'
    verb, form = _FORMS[what]
    listed = ' or '.join('all' if factor == 1 else form(factor) for factor in factors)
    return f'{what.capitalize()} are {verb}: {listed}{", by block" if len(factors) > 1 else ""}.'


_FORMS = {
    'queries': ('subsampled', lambda step: f'every {step}{_ENDINGS.get(step, "th")} row and column'),
    'keys': ('pooled', lambda pool: f'the mean of every {pool} x {pool}'),
}
_ENDINGS = {2: 'nd', 3: 'rd', 22: 'nd', 23: 'rd', 21: 'st', 31: 'st', 32: 'nd', 33: 'rd'}
