"""Measures of the tokens that blocks hand on: similarity, norms, CKA."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from vitplug.statistics.images import Arrays, Estimate, jackknife

from .. import figures
from ..measure import Measure, Seen, by_block
from ..quantities.cka import LEAST_EXAMPLES, BiasedCKA, MinibatchCKA, centred_gram
from ..quantities.places import Place
from ..quantities.tokens import OUTLIER_FACTOR, mean_similarity, norm_outliers, token_norms
from ..runs import Run

# Images whose features are compared at a time; the fewest, one of which is left out in turn.
GROUP, LEAST = 32, LEAST_EXAMPLES + 1


def of_tokens(name: str, definition: str, unit: str, source: str, values: Callable[[Tensor], dict]) -> Measure:
    """A measure of each block's patch tokens; ``values`` takes tokens ``(1, N, D)`` and gives numbers by name."""

    def reduce(run: Run, kind: str, tensor: Tensor, place: Place) -> dict[str, float]:
        return {value: float(number) for value, number in values(tensor[:, place.layout.num_prefix :]).items()}

    def observe(seen: Seen) -> Arrays:
        layers = seen.found['block']
        names = next(iter(layers.values()))
        return {value: by_block({i: kept[value] for i, kept in layers.items()}, seen.run.blocks) for value in names}

    return Measure(name, definition, unit, source, observe, ('block',), reduce, axes=('layer',))


def _norms(tokens_BND: Tensor) -> dict[str, Tensor]:
    norms_BN = token_norms(tokens_BND)
    return {
        'mean norm': norms_BN.mean(),
        'largest norm in medians': norms_BN.max() / norms_BN.median(),
        'share of outliers': norm_outliers(norms_BN).float().mean(),
    }


# --- CKA: groups of images whose features are compared ---


def _features(run: Run, kind: str, tensor: Tensor, place: Place) -> Tensor:
    return tensor.flatten().float()


def _in_order(seen: Seen) -> list[Tensor]:
    return [seen.found['block'][layer] for layer in sorted(seen.found['block'])]


def _stacked(images: Sequence[Sequence[Tensor]]) -> Iterator[Tensor]:
    return map(torch.stack, zip(*images, strict=True))


def even_groups(count: int) -> list[list[int]]:
    """Groups of up to 32 images."""
    if count < LEAST:
        raise ValueError(f'CKA needs {LEAST} images of one size, there are {count}; --num sets how many are taken')
    return [part.tolist() for part in np.array_split(np.arange(count), -(-count // GROUP))]


def _coordinates(images: Sequence[Sequence[Tensor]]) -> Arrays:
    """Few numbers of a group ``(blocks, m, m)`` that have its inner products, on which alone CKA depends."""
    found = []
    for x_mp in _stacked(images):
        values, vectors = torch.linalg.eigh(centred_gram(x_mp))
        found.append((vectors * values.clamp(min=0).sqrt()).cpu().numpy())
    return {'coordinates': np.stack(found)}


def _sums(unit: Arrays, left_out: int | None = None) -> dict[str, np.ndarray]:
    """Sums of HSIC over the images of a group, but one."""
    of_blocks = unit['coordinates']
    kept = [image for image in range(of_blocks.shape[1]) if image != left_out]
    layers = torch.from_numpy(of_blocks[:, kept]).unbind()
    sums = MinibatchCKA(len(layers), len(layers))
    sums.update(layers, layers)
    return sums.sums()


def _unbiased(units: Sequence[Arrays]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """CKA of all groups, blocks x blocks, and without each image in turn."""
    groups = [_sums(unit) for unit in units]
    left_out = (
        MinibatchCKA.of_sums([*groups[:number], _sums(unit, image), *groups[number + 1 :]])
        for number, unit in enumerate(units)
        for image in range(unit['coordinates'].shape[1])
    )
    return MinibatchCKA.of_sums(groups), left_out


def drawn_batches(batch: int, batches: int) -> Callable[[int], list[list[int]]]:
    """Batches of images drawn at random, the same ones in every call."""

    def groups(count: int) -> list[list[int]]:
        if count < batch * batches:
            raise ValueError(f'it needs {batch * batches} images of one size, there are {count}; --num sets how many')
        drawn = np.random.default_rng(0).permutation(np.arange(count))[: batch * batches]
        return [sorted(part.tolist()) for part in drawn.reshape(batches, batch)]

    return groups


def _grams(images: Sequence[Sequence[Tensor]]) -> Arrays:
    grams = list(map(centred_gram, _stacked(images)))
    return BiasedCKA.terms_of(grams, grams)


def _of_batches(units: Sequence[Arrays]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """The mean of the CKA of batches, and the same without each image in turn."""
    batches = [BiasedCKA(unit) for unit in units]
    of_batches = [batch.whole() for batch in batches]
    whole = np.mean(of_batches, axis=0)
    left_out = (
        whole + (without - of_batch) / len(batches)
        for batch, of_batch in zip(batches, of_batches, strict=True)
        for without in batch.without_each()
    )
    return whole, left_out


def _cka(matrix: np.ndarray) -> Arrays:
    return {'between blocks': matrix, 'to the next block': np.append(matrix.diagonal(1), np.nan)}


def _speed(matrix: np.ndarray) -> Arrays:
    return {'evolving speed': matrix[:, -1] / matrix[0, -1]}


ESTIMATORS = {
    '': (
        even_groups,
        _coordinates,
        _unbiased,
        f'unbiased HSIC summed over groups of up to {GROUP} images',
        'Nguyen 2021',
    ),
    '-paper-refiner': (
        drawn_batches(32, 10),
        _grams,
        _of_batches,
        'biased HSIC, mean of 10 batches of 32',
        'Refiner A.4',
    ),
    '-paper-bvit': (drawn_batches(1000, 1), _grams, _of_batches, 'biased HSIC of 1000 images', 'BViT, Eq. 9'),
}


def of_cka(name: str, estimator: str, what: str, unit: str, figure: str, values: Callable, axes: tuple) -> Measure:
    """A measure of the CKA of all blocks' outputs, flattened over tokens."""
    groups, join, matrices, words, source = ESTIMATORS[estimator]

    def estimate(run: Run, units: Sequence[Arrays]) -> dict[str, Estimate]:
        whole, left_out = matrices(units)
        images = sum(next(iter(unit.values())).shape[1] for unit in units) if not estimator else 0
        images = images or sum(unit['xx'].shape[-1] for unit in units)
        return jackknife(values(whole), list(map(values, left_out)), images)

    return Measure(
        f'{name}{estimator}',
        f'{what}, by {words}; images of the most frequent size',
        unit,
        f'{figure}; {source}',
        _in_order,
        ('block',),
        _features,
        estimate,
        axes,
        one_size=True,
        groups=groups,
        join=join,
        slow=bool(estimator),
        draw=figures.matrices if len(axes) > 1 else None,
    )


CKA = 'Linear CKA between the outputs of blocks'
SPEED = "CKA between a block's output and the last block's, divided by that between the first block's and the last's"
PAIRS = ('layer', 'other layer')

TOKENS = (
    of_tokens(
        'feature_similarity',
        "Mean cosine similarity of two different patch tokens of an image at a block's output",
        'cosine',
        'ReViT, Fig. 3',
        lambda tokens: {'similarity': mean_similarity(tokens)},
    ),
    of_tokens(
        'token_norms',
        "Euclidean norms of the patch tokens at a block's output: their mean, the largest in medians, and the share "
        f'above {OUTLIER_FACTOR:g} medians',
        'norm, medians, share',
        'Darcet et al. 2024, Fig. 3',
        _norms,
    ),
    *(of_cka('cka', estimator, CKA, 'CKA', 'BViT, Fig. 5', _cka, PAIRS) for estimator in ESTIMATORS),
    *(
        of_cka('evolving_speed', estimator, SPEED, 'ratio of CKA', 'Refiner, Fig. 2', _speed, ('layer',))
        for estimator in ('', '-paper-refiner')
    ),
)
