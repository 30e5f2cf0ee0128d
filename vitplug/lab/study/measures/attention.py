"""Measures of attention maps: entropy, distances, rollout.

Maps are recorded ones, ``(B, W, H, Nq, Nk)``; a :class:`~..places.Place` says where their queries and keys lie. Maps
of windows are measured as they are: no map of all pairs of tokens is formed. Averages run over queries that are tokens;
padding of windows is no part of the image, neither as a query nor as a key. Padding of a batch counts as image.

Maps after a plug such as ``Refiner`` can be negative, and their rows can have any sum. A weight then counts by its
size, in rows of a sum above 1 as a share of it; probabilities stay as they are.

A row whose attention to the patches is exactly zero (all of it on a class token or a sink) has no distance and no
entropy: such queries are left out, and :func:`undefined_queries` counts them. Without any other query, the head has
NaN. All functions raise a ValueError for maps of another place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vitplug.statistics.images import Arrays

from ..measure import FEW, Measure, Run, Seen, by_block, measure, nothing
from ..places import Place, Slots, dense_maps

# Smallest probability whose logarithm is taken.
TINY = 1e-12
# Entries of a map, or of a table of distances, that are worked on at a time.
CHUNK = 1 << 22
CLASS_TOKEN = 'cls_token'
QUERIES = ('patch', 'cls', 'all')
LEFT_OUT = 'queries left out'

#: Maps ``(B, W, H, Nq, Nk)`` and where they are, to numbers ``(B, H)``.
OfHeads = Callable[[Tensor, Place], Tensor]


def attention_entropy(maps_BWHNN: Tensor, place: Place, queries: str = 'patch') -> Tensor:
    """Entropy of attention, ``-sum_j a_ij ln a_ij``, mean over queries. Context Broadcasting, Fig. 3a and 5a.

    Args:
        maps_BWHNN: Recorded maps.
        place: Where they are.
        queries: ``'patch'``, whose rows are normalised again without prefix tokens as keys, ``'cls'`` (the class token
            alone) or ``'all'``.

    Returns:
        ``(B, H)`` in nats, at most ``ln Nk``.

    Raises:
        ValueError: If there are no such queries.
    """
    counts_WN = place.keys.is_patch if queries == 'patch' else place.keys.is_token

    def entropy_of(maps: Tensor, rows: slice) -> Tensor:
        probs = _normalised(maps, counts_WN)
        return -(probs * probs.clamp(min=TINY).log()).sum(-1)

    return _mean_over_queries(maps_BWHNN, place, _choose_queries(place, queries), entropy_of)


def mean_attention_distance(maps_BWHNN: Tensor, place: Place, unit: tuple[float, float] = (1, 1)) -> Tensor:
    """Mean attention distance, ``sum_j a_ij ||p_i - p_j||``, mean over patches: ``(B, H)`` in pixels. BViT, Fig. 6.

    Positions are the middles of the patches. Prefix tokens are left out, and rows are normalised again. ``unit`` is
    the length of another unit along both axes, in pixels.
    """
    (y_i, x_i), (y_j, x_j) = (
        _middles(slots, pixels.start, pixels.stride, unit)
        for slots, pixels in ((place.queries, place.pixels), (place.keys, place.key_pixels))
    )

    def distance_of(maps: Tensor, rows: slice) -> Tensor:
        distances = torch.hypot(y_i[:, rows, None] - y_j[:, None], x_i[:, rows, None] - x_j[:, None])
        return (_normalised(maps, place.keys.is_patch) * _like(distances, maps)).sum(-1)

    return _mean_over_queries(maps_BWHNN, place, place.queries.is_patch, distance_of)


def non_locality(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """The mean attention distance in tokens of the queries' map, ``(B, H)``. ReViT, Fig. 7; ConViT."""
    return mean_attention_distance(maps_BWHNN, place, unit=place.pixels.stride)


def relative_distance(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Relative distance, ``sum_j a_ij ||p_i - p_j||_1`` over other patches, mean over queries: ``(B, H)``. CB, Fig. 5b.

    Positions run from 0 to 1 along each side of the map: ``((row + 0.5) / h, (column + 0.5) / w)``.
    """
    (y_i, x_i), (y_j, x_j) = (
        _middles(slots, (0, 0), (1, 1), hw) for slots, hw in zip((place.queries, place.keys), place.grids, strict=True)
    )

    def distance_of(maps: Tensor, rows: slice) -> Tensor:
        distances = (y_i[:, rows, None] - y_j[:, None]).abs() + (x_i[:, rows, None] - x_j[:, None]).abs()
        return (_counted(maps, place.keys.is_patch) * _like(distances, maps)).sum(-1)

    return _mean_over_queries(maps_BWHNN, place, place.queries.is_patch, distance_of)


def undefined_queries(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Share of the patch queries without any attention to patches, ``(B, H)``."""

    def is_undefined(maps: Tensor, rows: slice) -> Tensor:
        return (_counted(maps, place.keys.is_patch).sum(-1) == 0).to(maps)

    return _mean_over_queries(maps_BWHNN, place, place.queries.is_patch, is_undefined)


def attention_rollout(maps: Sequence[Tensor]) -> Tensor:
    """Attention rollout: the product of the maps of all blocks. Abnar and Zuidema 2020, Eq. 1; BViT, Fig. 7.

    Args:
        maps: Maps ``(B, N, N)`` of the blocks from the first to the last, each the mean over its heads. Half of a
            block's map becomes the identity, for the residual connection.

    Returns:
        ``(B, N, N)``: row ``i`` is how much of the input tokens is in output token ``i``.

    Raises:
        ValueError: If there are no maps, or they are not square and of one size.
    """
    shapes = [tuple(map_BNN.shape) for map_BNN in maps]
    if len(set(shapes)) != 1 or len(shapes[0]) != 3 or shapes[0][1] != shapes[0][2]:
        raise ValueError(f'maps of shapes {shapes}: expected at least one (B, N, N), and all of one size')
    rolled = identity = torch.eye(shapes[0][1], dtype=maps[0].dtype, device=maps[0].device)
    for map_BNN in maps:
        mixed_BNN = 0.5 * map_BNN + 0.5 * identity
        rolled = mixed_BNN / mixed_BNN.sum(-1, keepdim=True) @ rolled
    return rolled


# --- over queries ---


def _choose_queries(place: Place, queries: str) -> Tensor:
    """``(W, N)``, True for the chosen queries."""
    if queries not in QUERIES:
        raise ValueError(f'queries={queries!r}: expected one of {list(QUERIES)}')
    if queries != 'cls':
        return place.queries.is_patch if queries == 'patch' else place.queries.is_token
    if CLASS_TOKEN not in place.prefix_names:
        raise ValueError("queries='cls': these maps have no class token; choose 'patch' or 'all'")
    chosen_WN = torch.zeros_like(place.queries.is_prefix)
    chosen_WN[:, place.prefix_names.index(CLASS_TOKEN)] = True
    return chosen_WN


def _middles(slots: Slots, start: Sequence[float], stride: Sequence[float], unit: Sequence[float]) -> list[Tensor]:
    """Rows and columns ``(W, N)`` of the middles of patches, in units of ``unit`` pixels."""
    axes = zip((slots.row, slots.column), start, stride, unit, strict=True)
    return [(first + (numbers.double() + 0.5) * step) / length for numbers, first, step, length in axes]


def _mean_over_queries(
    maps_BWHNN: Tensor, place: Place, chosen_WN: Tensor, of_rows: Callable[[Tensor, slice], Tensor]
) -> Tensor:
    """A number of each row of the maps, of the sizes of its weights, mean over the chosen rows but NaN, ``(B, H)``.

    Rows go in slices: what is computed of them does not need the memory of all maps once more.
    """
    place.check(maps_BWHNN)
    total, count = 0, 0
    for rows in _slices(maps_BWHNN.shape[3], maps_BWHNN[:, :, :, 0].numel()):
        sizes = maps_BWHNN[:, :, :, rows].to(torch.promote_types(maps_BWHNN.dtype, torch.float32)).abs()
        # Rows of a sum above 1 are shares of it. Probabilities are that already, also where no token has some of them.
        numbers_BWHN = of_rows(sizes / sizes.sum(-1, keepdim=True).clamp(min=1), rows)
        counts_BWHN = chosen_WN[:, rows].unsqueeze(1).to(numbers_BWHN.device) & numbers_BWHN.isfinite()
        total = total + numbers_BWHN.where(counts_BWHN, 0).sum((1, 3))
        count = count + counts_BWHN.sum((1, 3))
    return total / count


def _slices(rows: int, row_size: int) -> Iterator[slice]:
    """Slices of rows with no more than :data:`CHUNK` numbers, or of one row."""
    step = max(1, CHUNK // max(row_size, 1))
    return (slice(first, first + step) for first in range(0, rows, step))


def _counted(maps_BWHqN: Tensor, counts_WN: Tensor) -> Tensor:
    """The weights of the keys that count; the other keys get 0."""
    return maps_BWHqN * _like(counts_WN[:, None], maps_BWHqN)


def _normalised(maps_BWHqN: Tensor, counts_WN: Tensor) -> Tensor:
    """Rows whose sum over the keys that count is 1; NaN where the sum is 0."""
    counted = _counted(maps_BWHqN, counts_WN)
    return counted / counted.sum(-1, keepdim=True)


def _like(per_window: Tensor, rows: Tensor) -> Tensor:
    """``(W, ...)`` as ``(W, 1, ...)`` beside rows of maps ``(B, W, H, ...)``."""
    return per_window.unsqueeze(1).to(rows)


# --- the measures of heads ---


def of_heads(
    name: str, definition: str, unit: str, source: str, functions: Mapping[str, OfHeads], refined: bool = True, **more
) -> Measure:
    """A measure of each head of each block; ``functions`` take maps to numbers, by the name of the value.

    ``refined``: whether it is also defined for maps after a plug (Refiner), whose rows may be negative.
    """

    def reduce(run: Run, kind: str, tensor: Tensor, place: Place) -> dict[str, np.ndarray]:
        if kind == 'maps' and not run.changes_maps:
            return {}
        form = '{} after the plug' if kind == 'maps' else '{}'
        return {form.format(value): f(tensor, place)[0].float().cpu().numpy() for value, f in functions.items()}

    wants = ('probs', 'maps') if refined else ('probs',)
    return Measure(name, definition, unit, source, per_head, wants, reduce, axes=('layer', 'head'), **more)


def per_head(seen: Seen) -> Arrays:
    """Arrays ``(blocks, heads)`` of each value, and the mean of the heads ``(blocks,)``; only values of some block.

    Heads are averaged image by image, so that the mean has an interval of its own.
    """
    values: dict[str, dict[int, np.ndarray]] = {}
    for layers in seen.found.values():
        for layer, kept in layers.items():
            for value, heads in kept.items():
                values.setdefault(value, {})[layer] = heads
    arrays = {}
    for value, layers in values.items():
        there = {layer: heads[np.isfinite(heads)] for layer, heads in layers.items()}
        if any(map(len, there.values())):
            means = {layer: np.float32(heads.mean() if len(heads) else np.nan) for layer, heads in there.items()}
            arrays[value] = by_block(layers, seen.run.blocks)
            arrays[f'{value}, mean of heads'] = by_block(means, seen.run.blocks)
    return arrays


def _class_entropy(maps: Tensor, place: Place) -> Tensor:
    """NaN where there is no class token."""
    if CLASS_TOKEN not in place.prefix_names:
        return maps.new_full((len(maps), maps.shape[2]), torch.nan)
    return attention_entropy(maps, place, queries='cls')


OF_HEADS = (
    of_heads(
        'entropy',
        'Entropy of the attention of a query, -sum_j a_ij ln a_ij, averaged over queries; at most ln N for N keys',
        'nats',
        'Context Broadcasting, Fig. 3a and 5a',
        {
            'patch queries': attention_entropy,
            'class token': _class_entropy,
            'all queries': partial(attention_entropy, queries='all'),
            LEFT_OUT: undefined_queries,
        },
        refined=False,
    ),
    of_heads(
        'relative_distance',
        'Attention-weighted city-block distance of other patches, summed over keys and averaged over queries; '
        'positions run from 0 to 1',
        'image sides',
        'Context Broadcasting, Fig. 5b',
        {'relative distance': relative_distance},
    ),
    of_heads(
        'distance',
        'Attention-weighted Euclidean distance from a patch to the patches it attends to, averaged over queries',
        'pixels',
        'BViT, Fig. 6',
        {'mean distance': mean_attention_distance, LEFT_OUT: undefined_queries},
    ),
    of_heads(
        'non_locality',
        'Attention-weighted Euclidean distance in tokens, averaged over queries',
        'tokens',
        'ReViT, Fig. 7',
        {'non-locality': non_locality},
    ),
)


# --- rollout ---


def mean_map(run: Run, kind: str, tensor: Tensor, place: Place) -> Tensor:
    return dense_maps(tensor.mean(2, keepdim=True), place)[:, 0]


def rollout_heat(seen: Seen) -> Tensor:
    """The rollout over the image ``(H, W)``; a ValueError if a block has no maps, or they lie on several grids."""
    place, maps = seen.place(0), seen.found.get('probs', {})
    if missing := sorted(set(range(seen.run.blocks)) - set(maps)):
        raise ValueError(f'blocks {missing} have no maps of their own')
    rolled_NN = attention_rollout([maps[layer] for layer in sorted(maps)])[0]
    prefix = rolled_NN.shape[-1] - place.layout.hw[0] * place.layout.hw[1]
    row_N = rolled_NN[0] if seen.run.has_class_token else rolled_NN[prefix:].mean(0)
    return place.pixels.to_image(row_N[prefix:].unflatten(0, place.layout.hw), seen.size)


@measure(
    'probability',
    'BViT, Fig. 7; Abnar and Zuidema 2020, Eq. 1',
    'probs',
    reduce=mean_map,
    estimate=nothing,
    most=FEW,
    draw='heat',
)
def rollout(seen: Seen) -> Arrays:
    """Product over all blocks of the maps, averaged over heads, half identity and normalised by row: attention of the
    class token to the patches, or of all tokens where there is none."""
    try:
        return {'picture': seen.picture, '': rollout_heat(seen).float().cpu().numpy()}
    except ValueError as error:  # the picture says so
        return {'picture': seen.picture, 'target': np.array(str(error))}


ATTENTION = (*OF_HEADS, rollout)
