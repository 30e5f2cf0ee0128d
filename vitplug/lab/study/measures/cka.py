"""Centred kernel alignment (CKA) with linear kernels: how similar two layers represent the same examples.

CKA depends on inner products alone: of a group of m images, the centred Gram matrices ``(layers, m, m)`` in float64 are
kept, of each block's tokens, flattened. CKA is 1 for features that a rotation and one scale turn into each other.

Two estimates of the same quantity:

- biased, as in the papers: HSIC of all images of a group (Kornblith et al., arXiv 1905.00414), which is far above 0
  for unrelated features where there are more numbers than images;
- the unbiased HSIC_1 (Song et al., 2012) summed over groups (Nguyen et al., arXiv 2010.15327, Eq. 3).

Shape suffixes: L layers, M images.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vitplug.statistics.images import Arrays, Estimate, jackknife

from ..measure import Measure, Seen
from ..places import Place

if TYPE_CHECKING:
    from ..runs import Run

# Images whose features are compared at a time; the fewest: the unbiased estimate needs four, and one is left out.
GROUP, LEAST = 32, 5


def centred_grams(layers: Iterable[Tensor]) -> Tensor:
    """Centred Gram matrices ``(L, M, M)``, float64, of features ``(M, p)``; the layers may differ in p.

    Raises:
        ValueError: If they are no features of the same images.
    """
    grams = []
    for x_Mp in layers:
        if x_Mp.ndim != 2 or (grams and len(x_Mp) != len(grams[0])):
            raise ValueError(f'features {tuple(x_Mp.shape)}: expected (images, numbers of each), of the same images')
        # Relative to the first image, so that features without variance become exact zeros.
        relative = x_Mp.double() - x_Mp[:1].double()
        centred = relative - relative.mean(0)
        grams.append(centred @ centred.T)
    return torch.stack(grams)


def biased(grams_LMM: Tensor) -> np.ndarray:
    """Biased HSIC of every two layers, up to a factor that CKA does not see, ``(L, L)``."""
    return (grams_LMM.flatten(1) @ grams_LMM.flatten(1).T).cpu().numpy()


def unbiased(grams_LMM: Tensor) -> np.ndarray:
    """Unbiased HSIC_1 of every two layers, ``(L, L)``; four images or more.

    It is the dot product of U-centred Gram matrices over ``m (m - 3)``: with the diagonal set to 0, ``r_i`` the sum of
    row i and t that of all entries, entry ``(i, j)`` off the diagonal is
    ``k_ij - (r_i + r_j) / (m - 2) + t / ((m - 1) (m - 2))``. The product expands to the three terms of HSIC_1.
    """
    examples, grams_LMM = grams_LMM.shape[-1], grams_LMM.clone()
    grams_LMM.diagonal(dim1=1, dim2=2).zero_()
    rows_LM = grams_LMM.sum(2)
    grams_LMM += rows_LM.sum(1)[:, None, None] / ((examples - 1) * (examples - 2))
    grams_LMM -= (rows_LM[:, :, None] + rows_LM[:, None, :]) / (examples - 2)
    grams_LMM.diagonal(dim1=1, dim2=2).zero_()
    return biased(grams_LMM) / (examples * (examples - 3))


def cka(hsic: np.ndarray) -> np.ndarray:
    """CKA from HSIC of every two layers, ``(..., L, L)``; NaN for features without variance."""
    own = np.diagonal(hsic, axis1=-2, axis2=-1)
    with np.errstate(invalid='ignore', divide='ignore'):
        return hsic / np.sqrt(own[..., :, None] * own[..., None, :])


# --- of groups of images, and without each image in turn ---


def _grams(unit: Arrays) -> Tensor:
    return torch.from_numpy(unit['grams'])


def of_sums(units: Sequence[Arrays]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """Unbiased CKA of all groups together."""
    groups = [unbiased(_grams(unit)) for unit in units]
    total = np.sum(groups, axis=0)

    def without_each() -> Iterator[np.ndarray]:
        for unit, group in zip(units, groups, strict=True):
            images = torch.arange(unit['grams'].shape[-1])
            for left_out in images:
                kept = images[images != left_out]
                part = _grams(unit)[:, kept][:, :, kept]
                yield cka(total - group + unbiased(part))

    return cka(total), without_each()


def of_batches(units: Sequence[Arrays]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """The mean of the biased CKA of batches."""
    batches = [cka(biased(_grams(unit))) for unit in units]
    mean = np.mean(batches, axis=0)

    def without_each() -> Iterator[np.ndarray]:
        for unit, batch in zip(units, batches, strict=True):
            for without in cka(_biased_without_each(_grams(unit))):
                yield mean + (without - batch) / len(batches)

    return mean, without_each()


def _biased_without_each(grams_LMM: Tensor) -> np.ndarray:
    """Biased HSIC without each image in turn, ``(M, L, L)``.

    Without image i, centred inner products ``K_jk`` become ``K_jk + (K_ij + K_ik) / (m - 1) + K_ii / (m - 1)^2``, and
    so the products of two layers, ``t = sum_jk K_jk L_jk``, become ``t - 2 f sum_j K_ij L_ij + f^2 K_ii L_ii`` with
    ``f = m / (m - 1)``.
    """
    rows_MLL = torch.stack([(gram_MM * grams_LMM).sum(2) for gram_MM in grams_LMM]).permute(2, 0, 1)
    diagonal_ML = grams_LMM.diagonal(dim1=1, dim2=2).T
    factor = len(rows_MLL) / (len(rows_MLL) - 1)
    both_MLL = diagonal_ML[:, :, None] * diagonal_ML[:, None, :]
    return (rows_MLL.sum(0) - 2 * factor * rows_MLL + factor**2 * both_MLL).cpu().numpy()


# --- the measures ---


def _features(run: 'Run', kind: str, tensor: Tensor, place: Place) -> Tensor:
    return tensor.flatten().float()


def _in_order(seen: Seen) -> list[Tensor]:
    return [seen.found['block'][layer] for layer in sorted(seen.found['block'])]


def _joined(images: Sequence[Sequence[Tensor]]) -> Arrays:
    return {'grams': centred_grams(map(torch.stack, zip(*images, strict=True))).cpu().numpy()}


def even_groups(count: int) -> list[list[int]]:
    """Groups of up to 32 images."""
    if count < LEAST:
        raise ValueError(f'CKA needs {LEAST} images of one size, there are {count}; --num sets how many are taken')
    return [part.tolist() for part in np.array_split(np.arange(count), -(-count // GROUP))]


def drawn_batches(batch: int, batches: int) -> Callable[[int], list[list[int]]]:
    """Batches of images drawn at random, the same ones in every call."""

    def groups(count: int) -> list[list[int]]:
        if count < batch * batches:
            raise ValueError(f'it needs {batch * batches} images of one size, there are {count}; --num sets how many')
        drawn = np.random.default_rng(0).permutation(np.arange(count))[: batch * batches]
        return [sorted(part.tolist()) for part in drawn.reshape(batches, batch)]

    return groups


def _between(matrix: np.ndarray) -> Arrays:
    return {'between blocks': matrix, 'to the next block': np.append(matrix.diagonal(1), np.nan)}


def _speed(matrix: np.ndarray) -> Arrays:
    return {'evolving speed': matrix[:, -1] / matrix[0, -1]}


ESTIMATORS = {
    '': (even_groups, of_sums, f'unbiased HSIC summed over groups of up to {GROUP} images', 'Nguyen 2021'),
    '-paper-refiner': (drawn_batches(32, 10), of_batches, 'biased HSIC, mean of 10 batches of 32', 'Refiner A.4'),
    '-paper-bvit': (drawn_batches(1000, 1), of_batches, 'biased HSIC of 1000 images', 'BViT, Eq. 9'),
}


def of_cka(name: str, estimator: str, what: str, unit: str, figure: str, values: Callable, axes: tuple) -> Measure:
    """A measure of the CKA of all blocks' outputs, flattened over tokens."""
    groups, matrices, words, source = ESTIMATORS[estimator]

    def estimate(run: 'Run', units: Sequence[Arrays]) -> dict[str, Estimate]:
        whole, left_out = matrices(units)
        images = sum(unit['grams'].shape[-1] for unit in units)
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
        join=_joined,
        slow=bool(estimator),
        draw='matrices' if len(axes) > 1 else 'over_depth',
    )


MATRIX = 'Linear CKA between the outputs of blocks'
SPEED = "CKA between a block's output and the last block's, divided by that between the first block's and the last's"
PAIRS = ('layer', 'other layer')
CKA = (
    *(of_cka('cka', estimator, MATRIX, 'CKA', 'BViT, Fig. 5', _between, PAIRS) for estimator in ESTIMATORS),
    *(
        of_cka('evolving_speed', estimator, SPEED, 'ratio of CKA', 'Refiner, Fig. 2', _speed, ('layer',))
        for estimator in ('', '-paper-refiner')
    ),
)
