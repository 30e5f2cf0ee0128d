"""How similar features are: the patch tokens that a block hands on, and two layers by their centred kernel alignment.

CKA depends on inner products alone: of a group of m images, the centred Gram matrices ``(layers, m, m)`` in float64 are
kept, of each block's tokens, flattened. CKA is 1 for features that a rotation and one scale turn into each other.

Two estimates of the same quantity:

- biased, as in the papers: HSIC of all images of a group (Kornblith et al., arXiv 1905.00414), which is far above 0
  for unrelated features where there are more numbers than images;
- the unbiased HSIC_1 (Song et al., 2012) summed over groups (Nguyen et al., arXiv 2010.15327, Eq. 3).

Shape suffixes: B images, N patch tokens, D width; L layers, M images.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention.precision import at_least_float32
from vitplug.statistics.images import Arrays, Estimate, evenly_spaced, jackknife

from ..measure import Measure, Run, Seen, definition, measure, nothing
from ..places import Place
from .attention import MOST_PAIRS, of_blocks

# Images whose features are compared at a time; the fewest: the unbiased estimate needs four, and one is left out.
GROUP, LEAST = 32, 5

# --- tokens ---


def feature_similarity(tokens_BND: Tensor) -> Tensor:
    """Cosine similarity between all tokens of each image, ``(B, N, N)`` (ReViT, arXiv 2402.11301).

    A token of zeros is similar to none, itself included: 0.
    """
    unit_BND = F.normalize(tokens_BND.to(at_least_float32(tokens_BND.dtype)), dim=-1)
    return unit_BND @ unit_BND.mT


def mean_similarity(tokens_BND: Tensor) -> Tensor:
    """Mean cosine similarity of two different tokens ``(B,)``, without the ``N x N`` pairs; NaN for a single token.

    All pairs together are the squared length of the summed unit vectors, ``sum_ij u_i u_j = |sum_i u_i|^2``.
    """
    count, wide = tokens_BND.shape[1], at_least_float32(tokens_BND.dtype)
    unit_BND = F.normalize(tokens_BND.to(wide), dim=-1).double()
    pairs_B = unit_BND.sum(1).square().sum(1) - unit_BND.square().sum((1, 2))
    return (pairs_B / torch.tensor(count * (count - 1))).to(wide)


def _similarity(tokens: Tensor, place: Place) -> Tensor:
    """Mean cosine similarity of two different patch tokens of an image at a block's output."""
    return mean_similarity(tokens[:, place.layout.num_prefix :])


SIMILARITY = of_blocks('feature_similarity', 'cosine', 'ReViT, Fig. 3', {'similarity': _similarity}, 'block')


def _pairs(run: Run, kind: str, tensor: Tensor, place: Place) -> np.ndarray | None:
    if tensor.shape[1] ** 2 > MOST_PAIRS:
        return None
    return feature_similarity(tensor[:, place.layout.num_prefix :])[0].float().cpu().numpy()


@measure('cosine', 'ReViT, Fig. 3', 'block', reduce=_pairs, most=1, estimate=nothing, draw='maps')
def token_pairs(seen: Seen) -> Arrays:
    """Cosine similarity of every two patch tokens of an image at a block's output."""
    pairs = list(seen.found['block'].items())
    return {f'|block {layer}': one for layer, one in (pairs[at] for at in evenly_spaced(len(pairs), 12))}


# --- layers ---


def centred_grams(layers: Iterable[Tensor]) -> Tensor:
    """Centred Gram matrices ``(L, M, M)``, float64, of features ``(M, p)``; the layers may differ in p."""
    grams = []
    for x_Mp in layers:
        # Relative to the first image, so that features without variance become exact zeros.
        relative = x_Mp.double() - x_Mp[:1].double()
        centred = relative - relative.mean(0)
        grams.append(centred @ centred.T)
    return torch.stack(grams)


def biased(grams_LMM: Tensor) -> np.ndarray:
    """Biased HSIC of every two layers, up to a factor that CKA does not see, ``(L, L)``."""
    centred_LMM = grams_LMM - grams_LMM.mean(1, keepdim=True)
    flat = (centred_LMM - centred_LMM.mean(2, keepdim=True)).flatten(1)
    return (flat @ flat.T).cpu().numpy()


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
    flat = grams_LMM.flatten(1)
    return (flat @ flat.T).cpu().numpy() / (examples * (examples - 3))


def cka(hsic: np.ndarray) -> np.ndarray:
    """CKA from HSIC of every two layers, ``(L, L)``; NaN for features without variance."""
    own = np.diagonal(hsic)
    with np.errstate(invalid='ignore', divide='ignore'):
        return hsic / np.sqrt(np.outer(own, own))


def of_sums(groups: Iterable[Tensor]) -> np.ndarray:
    """Unbiased CKA of all groups together."""
    return cka(sum(map(unbiased, groups)))


def of_batches(groups: Iterable[Tensor]) -> np.ndarray:
    """The mean of the biased CKA of groups."""
    return np.mean([cka(biased(grams_LMM)) for grams_LMM in groups], axis=0)


def of_images(units: Sequence[Arrays], images: Sequence[tuple[int, int]]) -> Iterator[Tensor]:
    """Gram matrices of some images, given in order as numbers of their group and in it."""
    for number, some in groupby(images, key=itemgetter(0)):
        chosen = [image for _, image in some]
        yield torch.from_numpy(units[number]['grams'])[:, chosen][:, :, chosen]


# --- the measures of layers ---


def _joined(images: Sequence[Mapping[int, Tensor]]) -> Arrays:
    layers = (torch.stack([image[layer] for image in images]) for layer in sorted(images[0]))
    return {'grams': centred_grams(layers).cpu().numpy()}


def groups_of(count: int, size: int = GROUP, batches: int | None = None) -> list[list[int]]:
    """Even groups of at most ``size`` images, or ``batches`` drawn at random, the same ones in every call."""
    least = size * batches if batches else LEAST
    if count < least:
        raise ValueError(f'CKA needs {least} images of one size, there are {count}; --num sets how many are taken')
    if batches:
        drawn = np.random.default_rng(0).permutation(count)[:least]
        return np.sort(drawn.reshape(batches, size)).tolist()
    return [part.tolist() for part in np.array_split(np.arange(count), -(-count // size))]


#: By the end of the name: groups of images, CKA of their Gram matrices, words and source.
OF_32, OF_1000 = partial(groups_of, size=32, batches=10), partial(groups_of, size=1000, batches=1)
ESTIMATORS = {
    '': (groups_of, of_sums, f'unbiased HSIC summed over groups of up to {GROUP} images', 'Nguyen 2021'),
    '-paper-refiner': (OF_32, of_batches, 'biased HSIC, mean of 10 batches of 32', 'Refiner A.4'),
    '-paper-bvit': (OF_1000, of_batches, 'biased HSIC of 1000 images', 'BViT, Eq. 9'),
}


def of_cka(name: str, end: str, figure: str, values: Callable[[np.ndarray], Arrays], **more) -> Measure:
    """A measure of the CKA of all blocks' outputs, flattened over tokens; ``values`` takes the matrix of all blocks."""
    groups, matrix, words, source = ESTIMATORS[end]

    def estimate(run: Run, units: Sequence[Arrays]) -> dict[str, Estimate]:
        images = [(number, image) for number, unit in enumerate(units) for image in range(unit['grams'].shape[-1])]
        return jackknife(lambda some: values(matrix(of_images(units, some))), images)

    return Measure(
        f'{name}{end}',
        f'{definition(values)}, by {words}; images of the most frequent size',
        source=f'{figure}; {source}',
        observe=lambda seen: seen.found['block'],
        wants=('block',),
        reduce=lambda run, kind, tensor, place: tensor.flatten().float(),
        estimate=estimate,
        one_size=True,
        groups=groups,
        join=_joined,
        **more,
    )


def _between(matrix: np.ndarray) -> Arrays:
    """Linear CKA between the outputs of blocks."""
    return {'between blocks': matrix, 'to the next block': np.append(matrix.diagonal(1), np.nan)}


def _speed(matrix: np.ndarray) -> Arrays:
    """CKA between a block's output and the last block's, divided by that between the first block's and the last's."""
    return {'evolving speed': matrix[:, -1] / matrix[0, -1]}


CKA = (
    *(of_cka('cka', end, 'BViT, Fig. 5', _between, unit='CKA', draw='matrix') for end in ESTIMATORS),
    *(of_cka('evolving_speed', end, 'Refiner, Fig. 2', _speed, unit='ratio of CKA') for end in ('', '-paper-refiner')),
)
