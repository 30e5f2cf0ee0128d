"""Measures of attention maps: entropy, distances, similarity, rollout, sinks."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from vitplug.statistics.images import Arrays

from .. import figures
from ..measure import FEW, Measure, Seen, by_block, nothing
from ..quantities.attention import (
    attention_entropy,
    attention_rollout,
    map_similarity,
    mean_attention_distance,
    non_locality,
    relative_distance,
    undefined_queries,
)
from ..quantities.maps import dense_maps
from ..quantities.places import Place
from ..quantities.sinks import ATTENTION as ATTENTION_TO_SINK
from ..quantities.sinks import LONG, QUERIES, RANK, SHORT, Sinks, find_sinks
from ..runs import Run

# Heads are averaged image by image, so that the mean has an interval of its own.
OF_HEADS = '{}, mean of heads'
AFTER = '{} after the plug'
LEFT_OUT = 'queries left out'
# Entries of a map that are kept until the last block has come.
MOST = 2**25

#: Maps ``(B, W, H, Nq, Nk)`` and where they are, to numbers ``(B, H)``.
OfHeads = Callable[[Tensor, Place], Tensor]


def _class_entropy(maps: Tensor, place: Place) -> Tensor:
    """NaN where there is no class token."""
    if 'cls_token' not in place.prefix_names:
        return maps.new_full((len(maps), maps.shape[2]), torch.nan)
    return attention_entropy(maps, place, queries='cls')


def changes_maps(run: Run) -> bool:
    """Whether a plug changes the maps of some block, so that there are maps before and after it."""
    return run.is_plugged and any(block.plugs.at('map') for block in run.backbone.plugged_blocks())


def of_heads(
    name: str, definition: str, unit: str, source: str, functions: Mapping[str, OfHeads], refined: bool = True, **more
) -> Measure:
    """A measure of each head of each block.

    Args:
        name, definition, unit, source: As of every :class:`~..measure.Measure`.
        functions: Maps to numbers, by the name of the value.
        refined: Whether it is also defined for maps after a plug (Refiner), whose rows may be negative.
        more: Further attributes.
    """

    def reduce(run: Run, kind: str, tensor: Tensor, place: Place) -> dict[str, np.ndarray]:
        if kind == 'maps' and not changes_maps(run):
            return {}
        return {
            AFTER.format(value) if kind == 'maps' else value: function(tensor, place)[0].float().cpu().numpy()
            for value, function in functions.items()
        }

    wants = ('probs', 'maps') if refined else ('probs',)
    return Measure(name, definition, unit, source, per_head, wants, reduce, axes=('layer', 'head'), **more)


def per_head(seen: Seen) -> Arrays:
    """Arrays ``(blocks, heads)`` of each value, and the mean of the heads ``(blocks,)``; only values of some block."""
    values: dict[str, dict[int, np.ndarray]] = {}
    for layers in seen.found.values():
        for layer, kept in layers.items():
            for value, heads in kept.items():
                values.setdefault(value, {})[layer] = heads
    arrays = {}
    for value, layers in values.items():
        if any(np.isfinite(heads).any() for heads in layers.values()):
            arrays[value] = by_block(layers, seen.run.blocks)
            means = {layer: _mean(heads) for layer, heads in layers.items()}
            arrays[OF_HEADS.format(value)] = by_block(means, seen.run.blocks)
    return arrays


def _mean(heads: np.ndarray) -> np.ndarray:
    """The mean of the heads that have a number."""
    there = heads[np.isfinite(heads)]
    return np.float32(there.mean() if len(there) else np.nan)


# --- between blocks ---


def _similarity(run: Run, kind: str, tensor: Tensor, place: Place) -> tuple[Tensor, Place] | None:
    small = tensor[0, :, 0].numel() <= MOST and (kind == 'probs' or changes_maps(run))
    return (tensor.mean(2, keepdim=True), place) if small else None


def _between_blocks(seen: Seen) -> Arrays:
    arrays = {}
    for kind, layers in seen.found.items():
        there = {layer: kept for layer, kept in layers.items() if kept is not None}
        if there:
            blocks = seen.run.blocks
            matrix = np.full((blocks, blocks), np.nan, np.float32)
            matrix[list(there), list(there)] = 1
            for (a, (maps_a, at_a)), (b, (maps_b, at_b)) in combinations(sorted(there.items(), key=_first), 2):
                if _grids(at_a) == _grids(at_b):
                    matrix[a, b] = matrix[b, a] = map_similarity(maps_a, at_a, maps_b, at_b).item()
            names = ('between blocks', 'to the next block')
            names = [AFTER.format(name) if kind == 'maps' else name for name in names]
            arrays |= {names[0]: matrix, names[1]: np.append(matrix.diagonal(1), np.float32(np.nan))}
    return arrays


def _first(item: tuple) -> int:
    return item[0]


def _grids(place: Place) -> tuple:
    """The grids of queries and keys in the image."""
    return place.layout.hw, place.key_layout.hw


# --- rollout ---


def _mean_map(run: Run, kind: str, tensor: Tensor, place: Place) -> Tensor:
    return dense_maps(tensor.mean(2, keepdim=True), place)[:, 0]


def rollout_heat(seen: Seen, maps: Mapping[int, Tensor]) -> np.ndarray:
    """Rollout of the class token, or of all tokens, over the image ``(H, W)``.

    Raises:
        ValueError: If some blocks have no maps, or the tokens of blocks lie on several grids.
    """
    run, place = seen.run, seen.run.place(0, seen.size)
    if missing := sorted(set(range(run.blocks)) - set(maps)):
        raise ValueError(f'blocks {missing} have no maps of their own')
    rolled_NN = attention_rollout([maps[layer] for layer in sorted(maps)])[0]
    prefix = rolled_NN.shape[-1] - place.layout.hw[0] * place.layout.hw[1]
    row_N = rolled_NN[0] if run.has_class_token else rolled_NN[prefix:].mean(0)
    return place.pixels.to_image(row_N[prefix:].unflatten(0, place.layout.hw), seen.size).float().cpu().numpy()


def _rollout(seen: Seen) -> Arrays:
    try:
        return {'picture': seen.picture, '': rollout_heat(seen, seen.found.get('probs', {}))}
    except ValueError as error:  # the picture says so
        return {'picture': seen.picture, 'target': np.array(str(error))}


# --- sinks ---


def _sinks(run: Run, kind: str, tensor: Tensor, place: Place) -> Sinks | None:
    """The sinks of a block, once its probabilities are there: its values come first."""
    if kind == 'v':
        run.cache['values'] = tensor
        return None
    return find_sinks(tensor, run.cache.pop('values'), place)


def _sink_heads(seen: Seen) -> Arrays:
    found = {}
    for layer, sinks in seen.found.get('probs', {}).items():
        values = {
            'attention of the first key': sinks.mass,
            'sink': sinks.is_sink,
            'NOP': sinks.is_nop,
            'broadcast': sinks.is_broadcast,
        }
        found[layer] = {name: value[0].float().mean(0).cpu().numpy() for name, value in values.items()}
    return per_head(Seen(seen.run, seen.index, seen.batch, found={'probs': found}))


SINK = f'a key that gets at least {ATTENTION_TO_SINK:g} of the attention of {QUERIES:.0%} of the queries'

ATTENTION = (
    of_heads(
        'entropy',
        'Entropy of the attention of a query, -sum_j a_ij ln a_ij, averaged over queries; at most ln N for N keys',
        'nats',
        'Context Broadcasting, Fig. 3a and 5a',
        {
            'patch queries': partial(attention_entropy, queries='patch'),
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
        draw=figures.sorted_heads,
    ),
    of_heads(
        'non_locality',
        'Attention-weighted Euclidean distance in tokens, averaged over queries',
        'tokens',
        'ReViT, Fig. 7',
        {'non-locality': non_locality},
    ),
    Measure(
        'map_similarity',
        'Cosine similarity of the attention maps of two blocks on one grid, each the mean over its heads',
        'cosine',
        'DeepViT, Sec. 3 (Zhou et al. 2021), of whole maps',
        _between_blocks,
        ('probs', 'maps'),
        _similarity,
        axes=('layer', 'other layer'),
    ),
    Measure(
        'rollout',
        'Product over all blocks of the maps, averaged over heads, half identity and normalised by row: attention of '
        'the class token to the patches, or of all tokens where there is none',
        'probability',
        'BViT, Fig. 7; Abnar and Zuidema 2020, Eq. 1',
        _rollout,
        ('probs',),
        _mean_map,
        nothing,
        most=FEW,
        draw=figures.heat,
    ),
    Measure(
        'sinks',
        f'Attention of the key with the most of it, mean over queries, and whether it is a sink, {SINK}. A sink is a '
        f'NOP if the norm of its value is at most {SHORT:g} medians of the others, a broadcast if it is at least '
        f'{LONG:g} and the outputs of the head have a stable rank of at most {RANK:g}. Means over windows',
        'share',
        'Xiao et al. 2024 (sinks); the classes by value norm and stable rank: studies of sinks in ViTs',
        _sink_heads,
        ('v', 'probs'),
        _sinks,
        axes=('layer', 'head'),
    ),
)
