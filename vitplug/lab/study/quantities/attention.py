"""Measures of attention maps: entropy, distances, similarity, rollout.

Maps are recorded ones, ``(B, W, H, Nq, Nk)``; a :class:`~.places.Place` says where their queries and keys lie. The maps
of windows are measured as they are: no map of all pairs of tokens is formed. Averages run over queries that are tokens;
padding of windows is no part of the image, neither as a query nor as a key. Padding of a batch counts as image.

Maps after a plug such as ``Refiner`` can be negative, and their rows can have any sum. A weight then counts by its
size, in rows of a sum above 1 as a share of it; probabilities stay as they are.

A row whose attention to the patches is exactly zero (all of it on a class token or a sink) has no distance and no
entropy: such queries are left out, and :func:`undefined_queries` counts them. Without any other query, the head has
NaN.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .places import Place, Slots

# Smallest probability whose logarithm is taken.
TINY = 1e-12
# Entries of a map, or of a table of distances, that are worked on at a time.
CHUNK = 1 << 22

CLASS_TOKEN = 'cls_token'
QUERIES = ('patch', 'cls', 'all')


def attention_entropy(maps_BWHNN: Tensor, place: Place, queries: str = 'patch') -> Tensor:
    """Entropy of attention, ``-sum_j a_ij ln a_ij``, mean over queries. Context Broadcasting, Fig. 3a and 5a.

    Args:
        maps_BWHNN: Recorded maps, ``(B, W, H, Nq, Nk)``.
        place: Where they are.
        queries: ``'patch'``, whose rows are normalised again without prefix tokens as keys, ``'cls'`` (the class token
            alone) or ``'all'``.

    Returns:
        ``(B, H)`` in nats, at most ``ln Nk``.

    Raises:
        ValueError: If the maps are of another place, or there are no such queries.
    """
    chosen_WN = _choose_queries(place, queries)
    counts_WN = place.keys.is_patch if queries == 'patch' else place.keys.is_token

    def entropy_of(maps: Tensor, rows: slice) -> Tensor:
        probs = _normalised(maps, counts_WN)
        return -(probs * probs.clamp(min=TINY).log()).sum(-1)

    return _mean_over_queries(maps_BWHNN, place, chosen_WN, entropy_of)


def mean_attention_distance(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Mean attention distance, ``sum_j a_ij ||p_i - p_j||``, mean over patches. BViT, Fig. 6.

    Positions are the middles of the patches. Prefix tokens are left out, and rows are normalised again.

    Args:
        maps_BWHNN: Recorded maps, ``(B, W, H, Nq, Nk)``.
        place: Where they are.

    Returns:
        ``(B, H)`` in pixels.

    Raises:
        ValueError: If the maps are of another place.
    """
    return _euclidean(maps_BWHNN, place, unit=(1, 1))


def non_locality(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Non-locality: the mean attention distance counted in tokens. ReViT, Fig. 7; ConViT.

    Args:
        maps_BWHNN: Recorded maps, ``(B, W, H, Nq, Nk)``.
        place: Where they are.

    Returns:
        ``(B, H)`` in tokens of the queries' map.

    Raises:
        ValueError: If the maps are of another place.
    """
    return _euclidean(maps_BWHNN, place, unit=place.pixels.stride)


def relative_distance(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Relative distance, ``sum_j a_ij ||p_i - p_j||_1`` over other patches, mean over queries. CB, Fig. 5b.

    Positions run from 0 to 1 along each side of the map: ``((row + 0.5) / h, (column + 0.5) / w)``.

    Args:
        maps_BWHNN: Recorded maps, ``(B, W, H, Nq, Nk)``.
        place: Where they are.

    Returns:
        ``(B, H)`` in sides of the image.

    Raises:
        ValueError: If the maps are of another place.
    """
    ends = [
        [(numbers + 0.5) / side for numbers, side in zip((slots.row, slots.column), layout.hw, strict=True)]
        for slots, layout in ((place.queries, place.layout), (place.keys, place.key_layout))
    ]
    others_WN = place.keys.is_patch

    def distance_of(maps: Tensor, rows: slice) -> Tensor:
        (y_i, x_i), (y_j, x_j) = ends
        distances = (y_i[:, rows, None] - y_j[:, None]).abs() + (x_i[:, rows, None] - x_j[:, None]).abs()
        return (maps * _like(others_WN[:, None], maps) * _like(distances, maps)).sum(-1)

    return _mean_over_queries(maps_BWHNN, place, place.queries.is_patch, distance_of)


def undefined_queries(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Share of the patch queries without any attention to patches, ``(B, H)``; arguments as the measures."""

    def is_undefined(maps: Tensor, rows: slice) -> Tensor:
        return ((maps * _like(place.keys.is_patch[:, None], maps)).sum(-1) == 0).to(maps)

    return _mean_over_queries(maps_BWHNN, place, place.queries.is_patch, is_undefined)


def map_similarity(maps_a: Tensor, place_a: Place, maps_b: Tensor, place_b: Place) -> Tensor:
    """Cosine similarity of the maps of two blocks over all pairs of patches, each map the mean over its heads.

    Args:
        maps_a: Maps of one block, ``(B, W, H, Nq, Nk)``.
        place_a: Where they are.
        maps_b: Maps of the other block; windows and heads may differ.
        place_b: Where they are.

    Returns:
        ``(B,)``.

    Raises:
        ValueError: If the maps are of other places, or the two blocks have other grids of queries or keys.
    """
    grids = [(place.layout.hw, place.key_layout.hw) for place in (place_a, place_b)]
    if grids[0] != grids[1]:
        raise ValueError(
            f'maps of queries and keys on grids {grids[0]} and {grids[1]}: only maps on the same grids can be compared'
        )
    a, b = (_Mean.of(*pair) for pair in ((maps_a, place_a), (maps_b, place_b)))
    return _product(a, b) / (_product(a, a) * _product(b, b)).sqrt().clamp(min=TINY)


def attention_rollout(maps: Sequence[Tensor]) -> Tensor:
    """Attention rollout: the product of the maps of all blocks. Abnar and Zuidema 2020, Eq. 1; BViT, Fig. 7.

    Args:
        maps: Maps ``(B, N, N)`` of the blocks from the first to the last, each the mean over its heads; for maps of
            windows see :func:`~.maps.dense_maps`. Half of a block's map becomes the identity,
            for the residual connection.

    Returns:
        ``(B, N, N)``: row ``i`` is how much of the input tokens is in output token ``i``.

    Raises:
        ValueError: If there are no maps, or they are not square and of one size.
    """
    shapes = [tuple(map_BNN.shape) for map_BNN in maps]
    if not shapes or len(set(shapes)) > 1 or len(shapes[0]) != 3 or shapes[0][1] != shapes[0][2]:
        raise ValueError(f'maps of shapes {shapes}: expected at least one (B, N, N), and all of one size')
    rolled = None
    for map_BNN in maps:
        map_BNN = 0.5 * map_BNN + 0.5 * torch.eye(map_BNN.shape[1], dtype=map_BNN.dtype, device=map_BNN.device)
        step = map_BNN / map_BNN.sum(-1, keepdim=True)
        rolled = step if rolled is None else step @ rolled
    return rolled


def _euclidean(maps_BWHNN: Tensor, place: Place, unit: tuple[float, float]) -> Tensor:
    """The attention-weighted distance of patches, ``(B, H)``; ``unit`` is its length in pixels along both axes."""
    (y_i, x_i), (y_j, x_j) = (
        _middles(slots, pixels.start, pixels.stride, unit)
        for slots, pixels in ((place.queries, place.pixels), (place.keys, place.key_pixels))
    )

    def distance_of(maps: Tensor, rows: slice) -> Tensor:
        distances = torch.hypot(y_i[:, rows, None] - y_j[:, None], x_i[:, rows, None] - x_j[:, None])
        return (_normalised(maps, place.keys.is_patch) * _like(distances, maps)).sum(-1)

    return _mean_over_queries(maps_BWHNN, place, place.queries.is_patch, distance_of)


@dataclass(frozen=True)
class _Mean:
    """Maps averaged over heads, ``(B, W, Nq, Nk)``, and what lies in their slots."""

    maps: Tensor
    queries: Slots
    keys: Slots

    @classmethod
    def of(cls, maps_BWHNN: Tensor, place: Place) -> '_Mean':
        place.check(maps_BWHNN)
        return cls(_wide(maps_BWHNN.mean(2)), place.queries, place.keys)


def _product(a: _Mean, b: _Mean) -> Tensor:
    """The sum over all pairs of patches of the product of two maps, ``(B,)``; a pair apart in windows has 0.

    Goes through the keys of the smaller windows and looks each up in the other's.
    """
    if a.maps.shape[-1] < b.maps.shape[-1]:
        a, b = b, a
    device, total = a.maps.device, 0
    window_of_key, slot_of_key = a.keys.of_patches
    for some in _slices(len(a.queries.of_patches[0]), len(a.maps) * a.maps.shape[-1]):
        (window_a, _), (window_b, _) = places = [[where[some] for where in of.queries.of_patches] for of in (a, b)]
        rows_a, rows_b = (
            of.maps[:, window.to(device), slot.to(device)] for of, (window, slot) in zip((a, b), places, strict=True)
        )
        keys = b.keys.patch[window_b]
        in_both = (keys >= 0) & (window_of_key[keys] == window_a[:, None])
        found_a = rows_a.gather(2, slot_of_key[keys].to(device).expand(rows_b.shape))
        total = total + (found_a * rows_b * in_both.to(rows_b)).sum((1, 2))
    return total


def _middles(slots: Slots, start: Sequence[float], stride: Sequence[float], unit: Sequence[float]) -> list[Tensor]:
    """Rows and columns ``(W, N)`` of the middles of patches, in units of ``unit`` pixels."""
    axes = zip((slots.row, slots.column), start, stride, unit, strict=True)
    return [(first + (numbers.double() + 0.5) * step) / length for numbers, first, step, length in axes]


def _choose_queries(place: Place, queries: str) -> Tensor:
    """``(W, N)``, True for the chosen queries."""
    if queries not in QUERIES:
        raise ValueError(f'queries={queries!r}: expected one of {list(QUERIES)}')
    if queries == 'patch':
        return place.queries.is_patch
    if queries == 'all':
        return place.queries.is_token
    if CLASS_TOKEN not in place.prefix_names:
        raise ValueError("queries='cls': these maps have no class token; choose 'patch' or 'all'")
    chosen_WN = torch.zeros_like(place.queries.is_prefix)
    chosen_WN[:, place.prefix_names.index(CLASS_TOKEN)] = True
    return chosen_WN


def _mean_over_queries(
    maps_BWHNN: Tensor, place: Place, chosen_WN: Tensor, of_rows: Callable[[Tensor, slice], Tensor]
) -> Tensor:
    """A number of each row of the maps, of the sizes of its weights, mean over the chosen rows but NaN, ``(B, H)``.

    Rows go in slices: what is computed of them does not need the memory of all maps once more.
    """
    place.check(maps_BWHNN)
    total, count = 0, 0
    for rows in _slices(maps_BWHNN.shape[3], maps_BWHNN[:, :, :, 0].numel()):
        numbers_BWHN = of_rows(_shares(_wide(maps_BWHNN[:, :, :, rows])), rows)
        chosen_W1N = chosen_WN[:, rows].unsqueeze(1).to(numbers_BWHN.device)
        counts_BWHN = chosen_W1N & numbers_BWHN.isfinite()
        total = total + numbers_BWHN.where(counts_BWHN, 0).sum((1, 3))
        count = count + counts_BWHN.sum((1, 3))
    return total / count


def _shares(maps_BWHqN: Tensor) -> Tensor:
    """The size of every weight, as a share of its row where they sum to more than 1.

    Probabilities are that already, also where keys of no token have taken some of them.
    """
    sizes = maps_BWHqN.abs()
    return sizes / sizes.sum(-1, keepdim=True).clamp(min=1)


def _normalised(maps_BWHqN: Tensor, counts: Tensor) -> Tensor:
    """Rows whose sum over the keys that count, ``(W, Nk)``, is 1; the other keys get 0. NaN where the sum is 0."""
    counted = maps_BWHqN * _like(counts[:, None], maps_BWHqN)
    return counted / counted.sum(-1, keepdim=True)


def _like(per_window: Tensor, rows: Tensor) -> Tensor:
    """``(W, ...)`` as ``(W, 1, ...)`` beside rows of maps ``(B, W, H, ...)``."""
    return per_window.unsqueeze(1).to(rows)


def _wide(maps: Tensor) -> Tensor:
    """In float32, or in float64 if that is what they are."""
    return maps.to(torch.promote_types(maps.dtype, torch.float32))


def _slices(rows: int, row_size: int) -> Iterator[slice]:
    """Slices of rows with no more than :data:`CHUNK` numbers, or of one row."""
    step = max(1, CHUNK // max(row_size, 1))
    return (slice(first, first + step) for first in range(0, rows, step))
