"""Measures of attention maps."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from math import prod

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from vitplug.analysis.measures.attention import (
    attention_entropy,
    attention_rollout,
    map_similarity,
    mean_attention_distance,
    non_locality,
    relative_distance,
)
from vitplug.analysis.measures.maps import dense_maps
from vitplug.analysis.measures.places import Place
from vitplug.statistics.images import Arrays, Estimate

from . import drawing
from .loaded import Loaded
from .measure import Measure, Picture, Recorded, Shown, by_block, values_of
from .subject import Subject

# Heads are averaged image by image, so that the mean has an interval of its own.
OF_HEADS = '{}, mean of heads'
AFTER = '{} after the plug'
# Images of a picture.
FEW = 4

#: Maps ``(B, W, H, Nq, Nk)`` and where they are, to numbers ``(B, H)``.
OfHeads = Callable[[Tensor, Place], Tensor]


class OfMaps(Measure):
    """What measures of attention maps share."""

    needs = 'attention maps'
    #: Whether it is also defined for maps after a plug (Refiner), whose rows may be negative.
    refined = True

    def why_not(self, subject: Subject) -> str:
        return '' if subject.layers_with('probs') else 'no block has attention maps'

    def names(self, subject: Subject) -> tuple[str, ...]:
        return ('probs', 'maps') if self.refined and subject.changes_maps else ('probs',)

    def value_of(self, value: str, name: str) -> str:
        """The name of a value of the maps before or after the plug."""
        return AFTER.format(value) if name == 'maps' else value


class PerHead(OfMaps):
    """Numbers of each head of each block.

    Args:
        name, title, definition, unit, source: As of every :class:`Measure`.
        functions: Maps to numbers, by the name of the value.
        sorted_heads: Whether the picture has the heads of each block, sorted, and not the blocks over depth.
    """

    def __init__(
        self,
        name: str,
        title: str,
        definition: str,
        unit: str,
        source: str,
        functions: Mapping[str, OfHeads],
        sorted_heads: bool = False,
    ):
        self.name, self.title, self.definition, self.unit, self.source = name, title, definition, unit, source
        self.functions, self.sorted_heads = functions, sorted_heads

    def functions_of(self, subject: Subject) -> Mapping[str, OfHeads]:
        """The functions that apply to a model."""
        return self.functions

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> dict[str, np.ndarray]:
        return {
            self.value_of(value, name): function(tensor, place)[0].float().cpu().numpy()
            for value, function in self.functions_of(subject).items()
        }

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        values: dict[str, dict[int, np.ndarray]] = {}
        for layers in recorded.values():
            for layer, kept in layers.items():
                for value, heads in kept.items():
                    values.setdefault(value, {})[layer] = heads
        arrays = {}
        for value, layers in values.items():
            arrays[value] = by_block(layers, subject.num_layers)
            means = {layer: heads.mean() for layer, heads in layers.items()}
            arrays[OF_HEADS.format(value)] = by_block(means, subject.num_layers)
        return arrays

    def draw(self, shown: Sequence[Shown]) -> Figure:
        if self.sorted_heads:
            return drawing.sorted_heads(self.title, self.unit, _by_model(shown))
        return drawing.over_depth(self.title, self.unit, _panels(shown))


class Entropy(PerHead):
    """Entropy of the rows of maps: of patches and, where there are further tokens, of the class token and of all."""

    refined = False
    CLASS, ALL = 'class token', 'all queries'

    def left_out(self, subject: Subject) -> str:
        return '; '.join(f'{value}: {reason}' for value, reason in self._missing(subject).items())

    def functions_of(self, subject: Subject) -> Mapping[str, OfHeads]:
        missing = self._missing(subject)
        return {value: function for value, function in self.functions.items() if value not in missing}

    def _missing(self, subject: Subject) -> dict[str, str]:
        """The values that a model does not have, with the reasons."""
        missing = {} if subject.has_class_token else {self.CLASS: 'the model has none'}
        return missing if subject.backbone.num_prefix else missing | {self.ALL: 'they are the patch queries'}


def _by_model(shown: Sequence[Shown]) -> dict[str, Estimate]:
    """For :func:`~.drawing.sorted_heads`: the heads by model, before and after a plug that changes maps."""
    return {
        AFTER.format(one.label) if value.endswith(AFTER.format('')) else one.label: estimate
        for one in shown
        for value, estimate in one.estimates.items()
        if estimate.mean.ndim == 2
    }


def _panels(shown: Sequence[Shown]) -> dict[str, dict[str, dict[str, Estimate]]]:
    """For :func:`~.drawing.over_depth`: by value, then by model, the mean of heads and the heads."""
    return {
        value: {
            one.label: dict(mean=one.estimates[OF_HEADS.format(value)], heads=one.estimates[value])
            for one in shown
            if value in one.estimates
        }
        for value in values_of(shown, ndim=2)
    }


class MapSimilarity(OfMaps):
    name = 'map_similarity'
    title = 'Similarity of attention maps between blocks'
    definition = 'Cosine similarity of the attention maps of two blocks on one grid, each the mean over its heads'
    unit = 'cosine'
    source = 'DeepViT, Sec. 3 (Zhou et al. 2021), of whole maps'
    axes = ('layer', 'other layer')
    ALL, NEXT = 'between blocks', 'to the next block'
    # Entries of a map, the mean over its heads: those of all blocks are kept until the last one has come.
    MOST = 2**25

    def left_out(self, subject: Subject) -> str:
        sizes = set(subject.sizes)
        layers = subject.layers_with('probs')
        large = [layer for layer in layers if any(self._is_large(subject.place(layer, size)) for size in sizes)]
        return f'blocks {large} in images where their maps have more than {self.MOST:,} entries' if large else ''

    def _is_large(self, place: Place) -> bool:
        sides = (layout.grid.num_tokens for layout in (place.layout, place.key_layout))
        return prod((*place.layout.windows, *sides)) > self.MOST

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> tuple[Tensor, Place]:
        return tensor.mean(2, keepdim=True), place

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        arrays = {}
        for name, layers in recorded.items():
            small = {layer: kept for layer, kept in layers.items() if not self._is_large(kept[1])}
            matrix = self._matrix(small, subject.num_layers)
            arrays[self.value_of(self.ALL, name)] = matrix
            arrays[self.value_of(self.NEXT, name)] = np.append(matrix.diagonal(1), np.float32(np.nan))
        return arrays

    def _matrix(self, layers: Mapping[int, tuple[Tensor, Place]], num_layers: int) -> np.ndarray:
        matrix = np.full((num_layers, num_layers), np.nan, np.float32)
        for layer in layers:
            matrix[layer, layer] = 1
        for (a, (maps_a, place_a)), (b, (maps_b, place_b)) in combinations(sorted(layers.items(), key=_first), 2):
            if _grids(place_a) == _grids(place_b):
                matrix[a, b] = matrix[b, a] = map_similarity(maps_a, place_a, maps_b, place_b).item()
        return matrix

    def draw(self, shown: Sequence[Shown]) -> Figure:
        means = {
            f'{one.label}{value.removeprefix(self.ALL)}': estimate.mean
            for one in shown
            for value, estimate in one.estimates.items()
            if estimate.mean.ndim == 2
        }
        return drawing.matrices(self.title, means, dict.fromkeys(means, ('block', 'block')))


def _first(item: tuple):
    return item[0]


def _grids(place: Place) -> tuple:
    """The grids of queries and keys in the image."""
    return place.layout.hw, place.key_layout.hw


class HeatPicture(Picture):
    """Heat over a few images."""

    count = FEW

    def draw(self, shown: Sequence[Shown]) -> Figure:
        return drawing.heat_over_images(self.title, heat_rows(shown))


class Rollout(HeatPicture, OfMaps):
    name = 'rollout'
    title = 'Attention rollout'
    definition = (
        'Product over all blocks of the maps, averaged over heads, half identity and normalised by row: attention of '
        'the class token to the patches, or of all tokens where there is none'
    )
    unit = 'probability'
    source = 'BViT, Fig. 7; Abnar and Zuidema 2020, Eq. 1'
    needs = 'attention maps of all blocks on one grid'
    refined = False

    def why_not(self, subject: Subject) -> str:
        if without := super().why_not(subject):
            return without
        layers = subject.layers_with('probs')
        if len(layers) < subject.num_layers:
            missing = sorted(set(range(subject.num_layers)) - set(layers))
            return f'blocks {missing} have no maps of their own'
        places = [subject.place(layer, subject.sizes[0]) for layer in layers]
        grids = {grid for place in places for grid in _grids(place)}
        return f'blocks have tokens on several grids, {sorted(grids)}' if len(grids) > 1 else ''

    def reduce(self, subject: Subject, name: str, tensor: Tensor, place: Place) -> Tensor:
        return dense_maps(tensor.mean(2, keepdim=True), place)[:, 0]

    def observe(self, subject: Subject, image: Loaded, recorded: Recorded) -> Arrays:
        maps = [recorded['probs'][layer] for layer in sorted(recorded['probs'])]
        rolled_NN = attention_rollout(maps)[0]
        place = subject.place(0, image.size)
        prefix = rolled_NN.shape[-1] - place.layout.hw[0] * place.layout.hw[1]
        row_N = rolled_NN[0] if subject.has_class_token else rolled_NN[prefix:].mean(0)
        heat_hw = row_N[prefix:].unflatten(0, place.layout.hw)
        heat = place.pixels.to_image(heat_hw, image.size)
        return {'picture': image.picture, '': heat.float().cpu().numpy()}


def heat_rows(shown: Sequence[Shown]) -> list[tuple[np.ndarray, dict[str, tuple[np.ndarray | None, str]]]]:
    """For :func:`~.drawing.heat_over_images`: the images of the first model, and the heat of all models.

    A unit has a ``'picture'``, perhaps a ``'target'`` in words, and heat under any other names.
    """
    columns = [
        (one, name)
        for one in shown
        for name in dict.fromkeys(name for unit in one.units for name in unit)
        if name not in ('picture', 'target')
    ]
    return [
        (
            shown[0].units[index]['picture'],
            {
                ', '.join(filter(None, (one.label, name))): (
                    one.units[index].get(name),
                    str(one.units[index].get('target', '')),
                )
                for one, name in columns
            },
        )
        for index in range(len(shown[0].units))
    ]


ATTENTION = (
    Entropy(
        'entropy',
        'Attention entropy',
        'Entropy of the attention of a query, -sum_j a_ij ln a_ij, averaged over queries; at most ln N for N keys',
        'nats',
        'Context Broadcasting, Fig. 3a and 5a',
        {
            'patch queries': partial(attention_entropy, queries='patch'),
            Entropy.CLASS: partial(attention_entropy, queries='cls'),
            Entropy.ALL: partial(attention_entropy, queries='all'),
        },
    ),
    PerHead(
        'relative_distance',
        'Relative distance of attention',
        'Attention-weighted city-block distance of other patches, summed over keys and averaged over queries; '
        'positions run from 0 to 1',
        'image sides',
        'Context Broadcasting, Fig. 5b',
        {'relative distance': relative_distance},
    ),
    PerHead(
        'distance',
        'Mean attention distance',
        'Mean attention distance: attention-weighted Euclidean distance from a patch to the patches it attends to, '
        'averaged over queries',
        'pixels',
        'BViT, Fig. 6',
        {'mean distance': mean_attention_distance},
        sorted_heads=True,
    ),
    PerHead(
        'non_locality',
        'Non-locality of attention',
        'Attention-weighted Euclidean distance in tokens, averaged over queries',
        'tokens',
        'ReViT, Fig. 7',
        {'non-locality': non_locality},
    ),
    MapSimilarity(),
    Rollout(),
)
