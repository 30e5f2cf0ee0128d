"""Measures of attention maps: entropy, distances, sinks, similarity of the maps of two blocks, rollout.

Maps are recorded ones, ``(B, W, H, Nq, Nk)``; a :class:`~..places.Place` says where their queries and keys lie, and
another one raises a ValueError. Means are over queries that are tokens, and give ``(B, H)``; padding of windows is
neither a query nor a key. Padding of a batch counts as image.

Maps after a plug such as ``Refiner`` can be negative, and their rows can have any sum. A weight then counts by its
size, in rows of a sum above 1 as a share of it; probabilities stay as they are.

A row whose attention to the patches is exactly zero (all of it on a class token or a sink) has no distance and no
entropy: such queries are left out, and :func:`undefined_queries` counts them. Without any other query, the head has
NaN.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import entr
from torch import Tensor

from vitplug.attention.precision import at_least_float32
from vitplug.hosting.maps import attention_received
from vitplug.statistics.images import Arrays

from ..measure import FEW, Measure, Run, Seen, by_block, definition, measure, nothing
from ..places import Place, dense_maps
from .fields import centre_token

LEFT_OUT = 'queries left out'
# Pairs of patches of a map that is kept whole.
MOST_PAIRS = 1 << 22
# Smallest probability whose logarithm is taken.
TINY = np.float32(1e-12)
# Maps of a picture from low to high entropy.
MAPS = 6
# Blocks of Refiner's figure, of 32, counted from 1.
OF_32 = (1, 4, 11, 18, 23, 29, 30)
FIGURE = dict(estimate=nothing, draw='maps')


def attention_entropy(maps_BWHNN: Tensor, place: Place, queries: str = 'patch') -> Tensor:
    """Entropy of the attention of a query, -sum_j a_ij ln a_ij, averaged over queries; at most ln N for N keys.

    ``queries`` are ``'patch'``, with rows normalised again without prefix keys, ``'prefix'`` or ``'all'``. In nats.
    """
    chosen_WN, keys_WN = place.queries.is_token, place.keys.is_token
    if queries == 'patch':
        chosen_WN, keys_WN = place.queries.is_patch, place.keys.is_patch
    if queries == 'prefix':
        chosen_WN = chosen_WN & ~place.queries.is_patch
    rows = _weights(maps_BWHNN, place, keys_WN)
    return _over_queries(torch.special.entr(rows / rows.sum(-1, keepdim=True)).sum(-1), chosen_WN)


def mean_attention_distance(maps_BWHNN: Tensor, place: Place, unit: Sequence[float] = (1, 1)) -> Tensor:
    """Attention-weighted Euclidean distance from a patch to the patches it attends to, averaged over queries.

    Positions are the middles of the patches. Prefix tokens are left out, and rows are normalised again. ``unit`` is
    the length of another unit than pixels along both axes.
    """
    sides = (np.divide((grid.start, grid.stride), unit) for grid in (place.pixels, place.key_pixels))
    rows = _weights(maps_BWHNN, place, place.keys.is_patch)
    distances_WNN = torch.hypot(*_offsets(place, *sides))
    weighted = rows / rows.sum(-1, keepdim=True) * distances_WNN[:, None].to(rows)
    return _over_queries(weighted.sum(-1), place.queries.is_patch)


def non_locality(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Attention-weighted Euclidean distance in tokens of the queries' map, averaged over queries."""
    return mean_attention_distance(maps_BWHNN, place, unit=place.pixels.stride)


def relative_distance(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Attention-weighted city-block distance of other patches, summed over keys and averaged over queries; positions
    run from 0 to 1: ((row + 0.5) / h, (column + 0.5) / w)."""
    along_y, along_x = _offsets(place, *(((0, 0), np.reciprocal(hw, dtype=float)) for hw in place.grids))
    rows = _weights(maps_BWHNN, place, place.keys.is_patch)
    weighted = rows * (along_y.abs() + along_x.abs())[:, None].to(rows)
    return _over_queries(weighted.sum(-1), place.queries.is_patch)


def undefined_queries(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Share of the patch queries without any attention to patches."""
    sums = _weights(maps_BWHNN, place, place.keys.is_patch).sum(-1)
    return _over_queries((sums == 0).to(sums), place.queries.is_patch)


def sink_attention(maps_BWHNN: Tensor, place: Place) -> Tensor:
    """Attention of the key with the most of it, mean over queries and windows."""
    place.check(maps_BWHNN)
    maps = maps_BWHNN.to(at_least_float32(maps_BWHNN.dtype))
    is_query_W1N1 = place.queries.is_token[:, None, :, None].to(maps)
    received_BWHN = (maps * is_query_W1N1).sum(3) / is_query_W1N1.sum(2).clamp(min=1)
    return received_BWHN.masked_fill(~place.keys.is_token[:, None].to(maps.device), -1).amax(-1).mean(1)


def attention_rollout(maps: Sequence[Tensor]) -> Tensor:
    """Attention rollout: the product of the maps of all blocks. Abnar and Zuidema 2020, Eq. 1; BViT, Fig. 7.

    Maps are ``(B, N, N)`` of the blocks from the first to the last, each the mean over its heads; others raise a
    ValueError. Half of a block's map becomes the identity, for the residual connection. Row ``i`` of the result
    ``(B, N, N)`` is how much of the input tokens is in output token ``i``.
    """
    shapes = {tuple(map_BNN.shape) for map_BNN in maps}
    if len(shapes) != 1 or maps[0].shape[1] != maps[0].shape[2]:
        raise ValueError(f'maps of shapes {shapes}: expected (B, N, N), all of one size')
    rolled = identity = torch.eye(maps[0].shape[1], dtype=maps[0].dtype, device=maps[0].device)
    for map_BNN in maps:
        mixed_BNN = 0.5 * map_BNN + 0.5 * identity
        rolled = mixed_BNN / mixed_BNN.sum(-1, keepdim=True) @ rolled
    return rolled


# --- weights, distances, queries ---


def _weights(maps_BWHNN: Tensor, place: Place, keys_WN: Tensor) -> Tensor:
    """Sizes of the weights of some keys, 0 for the others."""
    place.check(maps_BWHNN)
    sizes = maps_BWHNN.to(at_least_float32(maps_BWHNN.dtype)).abs()
    # Rows of a sum above 1 are shares of it. Probabilities are that already, also where no token has some of them.
    return sizes / sizes.sum(-1, keepdim=True).clamp(min=1) * keys_WN[:, None, None].to(sizes)


def _offsets(place: Place, *sides: tuple[Sequence[float], Sequence[float]]) -> list[Tensor]:
    """What lies between queries and keys along rows and columns, ``(W, Nq, Nk)`` each.

    ``sides`` are start and step of queries and of keys, along rows and columns.
    """
    (y_i, x_i), (y_j, x_j) = (
        [first + (n.double() + 0.5) * step for n, first, step in zip((slots.row, slots.column), *axes, strict=True)]
        for slots, axes in zip((place.queries, place.keys), sides, strict=True)
    )
    return [y_i[:, :, None] - y_j[:, None], x_i[:, :, None] - x_j[:, None]]


def _over_queries(numbers_BWHN: Tensor, chosen_WN: Tensor) -> Tensor:
    """The mean over the chosen queries but NaN, ``(B, H)``."""
    counts_BWHN = chosen_WN[:, None].to(numbers_BWHN.device) & numbers_BWHN.isfinite()
    return numbers_BWHN.where(counts_BWHN, 0).sum((1, 3)) / counts_BWHN.sum((1, 3))


# --- the measures of heads ---


def of_blocks(name: str, unit: str, source: str, functions: Mapping[str, Callable], *wants: str) -> Measure:
    """A measure of each block: functions take an intermediate to numbers, by the name of the value; the first defines
    it.

    ``wants`` is the intermediate; with ``'maps'`` also those after a plug (Refiner), whose rows may be negative.
    """

    def reduce(run: Run, kind: str, tensor: Tensor, place: Place) -> dict[str, np.ndarray]:
        after = ' after the plug' if kind == 'maps' else ''
        return {f'{value}{after}': f(tensor, place)[0].float().cpu().numpy() for value, f in functions.items()}

    return Measure(name, definition(next(iter(functions.values()))), unit, source, _per_block, wants, reduce)


def _per_block(seen: Seen) -> Arrays:
    """Arrays ``(blocks,)`` or ``(blocks, heads)`` of each value that some block has.

    Heads are averaged image by image, so that their mean has an interval of its own.
    """
    values: dict[str, dict[int, np.ndarray]] = {}
    for layers in seen.found.values():
        for layer, kept in layers.items():
            for value, numbers in kept.items():
                if np.isfinite(numbers).any():
                    values.setdefault(value, {})[layer] = numbers
    arrays = {value: by_block(layers, seen.run.blocks) for value, layers in values.items()}
    of_heads = {f'{value}, mean of heads': array for value, array in arrays.items() if array.ndim == 2}
    return arrays | {value: torch.from_numpy(array).nanmean(1).numpy() for value, array in of_heads.items()}


ENTROPIES = {
    'patch queries': attention_entropy,
    'all queries': partial(attention_entropy, queries='all'),
    'prefix tokens': partial(attention_entropy, queries='prefix'),
    LEFT_OUT: undefined_queries,
}
DISTANCES = {'mean distance': mean_attention_distance, LEFT_OUT: undefined_queries}
RELATIVE, NON_LOCALITY = {'relative distance': relative_distance}, {'non-locality': non_locality}
OF_HEADS = (
    of_blocks('entropy', 'nats', 'Context Broadcasting, Fig. 3a and 5a', ENTROPIES, 'probs'),
    of_blocks('relative_distance', 'image sides', 'Context Broadcasting, Fig. 5b', RELATIVE, 'probs', 'maps'),
    of_blocks('distance', 'pixels', 'BViT, Fig. 6', DISTANCES, 'probs', 'maps'),
    of_blocks('non_locality', 'tokens', 'ReViT, Fig. 7', NON_LOCALITY, 'probs', 'maps'),
    of_blocks('sinks', 'share', 'Xiao et al. 2024', {'attention': sink_attention}, 'probs'),
)


# --- whole maps ---


def mean_map(run: Run, kind: str, tensor: Tensor, place: Place) -> Tensor:
    """Of all tokens to all tokens ``(1, Nq, Nk)``, mean over heads."""
    return dense_maps(tensor.mean(2, keepdim=True), place)[:, 0]


def map_of_patches(run: Run, kind: str, tensor: Tensor, place: Place) -> Tensor | None:
    """Of patches to patches ``(Nq, Nk)``; None of too many pairs."""
    queries, keys = (hw[0] * hw[1] for hw in place.grids)
    if queries * keys > MOST_PAIRS:
        return None
    return mean_map(run, kind, tensor, place)[0, -queries:, -keys:].float()


@measure('cosine', 'DeepViT, Sec. 3 (Zhou et al. 2021)', 'probs', 'maps', reduce=map_of_patches)
def map_similarity(seen: Seen) -> Arrays:
    """Cosine similarity of the attention maps of two blocks on one grid, each the mean over its heads."""
    arrays, blocks = {}, seen.run.blocks
    for kind, maps in seen.found.items():
        matrix = np.full((blocks, blocks), np.nan, np.float32)
        matrix[list(maps), list(maps)] = 1
        for a, b in combinations(maps, 2):
            if seen.place(a).grids == seen.place(b).grids:
                matrix[a, b] = matrix[b, a] = F.cosine_similarity(maps[a].flatten(), maps[b].flatten(), dim=0)
        after = ' after the plug' if kind == 'maps' else ''
        arrays[f'between blocks{after}'] = matrix
        arrays[f'to the next block{after}'] = np.append(matrix.diagonal(1), np.float32(np.nan))
    return arrays


def rollout_heat(seen: Seen) -> Tensor:
    """The rollout over the image ``(H, W)``; a ValueError if a block has no maps, or they lie on several grids."""
    place, maps = seen.place(0), seen.found['probs']
    if missing := sorted(set(range(seen.run.blocks)) - set(maps)):
        raise ValueError(f'blocks {missing} have no maps of their own')
    rolled_NN = attention_rollout(list(maps.values()))[0]
    prefix = rolled_NN.shape[-1] - place.layout.hw[0] * place.layout.hw[1]
    row_N = rolled_NN[0] if seen.run.has_class_token else rolled_NN[prefix:].mean(0)
    return place.pixels.to_image(row_N[prefix:].unflatten(0, place.layout.hw), seen.size)


@measure('probability', 'BViT, Fig. 7; Abnar and Zuidema 2020, Eq. 1', 'probs', reduce=mean_map, most=FEW, **FIGURE)
def rollout(seen: Seen) -> Arrays:
    """Product over all blocks of the maps, averaged over heads, half identity and normalised by row: attention of the
    class token to the patches, or of all tokens where there is none."""
    return {'picture': seen.picture, '': rollout_heat(seen).float().cpu().numpy()}


# --- pictures of maps ---


@measure('ln of probability', 'Context Broadcasting, Fig. 10', 'probs', reduce=mean_map, most=FEW, **FIGURE)
def class_attention(seen: Seen) -> Arrays:
    """Logarithm of the attention of the class token to each token, mean over heads, a row for each block; tokens are
    the class token and the patches in reading order."""
    if not seen.run.has_class_token:
        raise ValueError('it has no class token')
    maps = [map_NN for [map_NN] in seen.found['probs'].values() if map_NN.shape[0] == map_NN.shape[1]]  # no pooled keys
    rows = [map_NN[0].float().cpu().numpy() for map_NN in maps]
    table = by_block(dict(enumerate(rows)), len(rows))  # of stages with fewer tokens, too
    return {f'|image {seen.index}': np.log(np.maximum(table, TINY))} if rows else {}


def _central(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray:
    """The attention of the central patch to the patches, by head, normalised again."""
    row, column = centre_token(place.layout.hw)
    query = place.layout.num_prefix + row * place.layout.hw[1] + column
    maps_Hhw = attention_received(tensor, place.layout, place.key_layout, query)[0]
    return (maps_Hhw / maps_Hhw.sum((1, 2), keepdim=True)).float().cpu().numpy()


@measure('nats', 'Context Broadcasting, Fig. 3b', 'probs', reduce=_central, most=1, **FIGURE)
def maps_by_entropy(seen: Seen) -> Arrays:
    """Attention of the central patch to the patches, by head, and its entropy in nats, the row normalised again without
    further tokens; maps at even steps between the lowest and the highest entropy of all blocks."""
    maps = {
        (float(entr(heads[head]).sum()), layer, head): heads[head]
        for layer, heads in seen.found['probs'].items()
        for head in range(len(heads))
        if np.isfinite(heads[head]).all()  # a head with all of its attention elsewhere has none
    }
    if not maps:
        return {}
    wanted = np.linspace(min(maps)[0], max(maps)[0], MAPS)
    chosen = dict.fromkeys(min(sorted(maps), key=lambda key, value=value: abs(key[0] - value)) for value in wanted)
    named = {f'{key[0]:.2f} (block {key[1]}, head {key[2]})': maps[key] for key in chosen}
    return {'picture': seen.picture, **named}


@measure('weight', 'Refiner, Fig. 5', 'probs', 'maps', reduce=map_of_patches, most=1, **FIGURE)
def refined_maps(seen: Seen) -> Arrays:
    """Attention of every patch to every patch, mean over heads, before and after the plug that changes maps; of the
    blocks of the paper's figure, at the same share of another depth."""
    arrays: Arrays = {}
    before, after = seen.found['probs'], seen.found['maps']
    for layer in dict.fromkeys(round((number - 1) * (seen.run.blocks - 1) / 31) for number in OF_32):
        if layer in before:
            arrays[f'|block {layer}'] = before[layer].cpu().numpy()
        if layer in after:
            own = max((other for other in before if other <= layer), default=layer)
            reused = '' if own == layer else f' (map of block {own})'
            arrays[f'after the plug|block {layer}{reused}'] = after[layer].cpu().numpy()
    return arrays
