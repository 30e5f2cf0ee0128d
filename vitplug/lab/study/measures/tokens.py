"""Measures of the patch tokens that blocks hand on: how similar those of an image are, and how long.

Shape suffixes: B images, N patch tokens, D width. Prefix tokens are dropped first.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention.precision import at_least_float32
from vitplug.statistics.images import Arrays

from ..measure import Measure, Run, Seen, by_block
from ..places import Place

OUTLIER_FACTOR = 3.0


def feature_similarity(tokens_BND: Tensor) -> Tensor:
    """Cosine similarity between all tokens of each image, ``(B, N, N)`` (ReViT, arXiv 2402.11301).

    A token of zeros is similar to none, itself included: 0.
    """
    unit_BND = _unit(tokens_BND)
    return unit_BND @ unit_BND.mT


def mean_similarity(tokens_BND: Tensor) -> Tensor:
    """Mean cosine similarity of two different tokens ``(B,)``, without the ``N x N`` pairs; NaN for a single token.

    All pairs together are the squared length of the summed unit vectors, ``sum_ij u_i u_j = |sum_i u_i|^2``.
    """
    count = tokens_BND.shape[1]
    unit_BND = _unit(tokens_BND).double()
    pairs_B = unit_BND.sum(1).square().sum(1) - unit_BND.square().sum((1, 2))
    return (pairs_B / torch.tensor(count * (count - 1))).to(at_least_float32(tokens_BND.dtype))


def token_norms(tokens_BND: Tensor) -> Tensor:
    """Euclidean norms of tokens, ``(B, N)``."""
    return torch.linalg.vector_norm(tokens_BND, dim=-1, dtype=at_least_float32(tokens_BND.dtype))


def norm_outliers(norms_BN: Tensor, factor: float = OUTLIER_FACTOR) -> Tensor:
    """Tokens that are longer than ``factor`` times the median token of their image: ``(B, N)``, True for outliers.

    *Vision Transformers Need Registers* (arXiv 2309.16588) finds tokens about 10 times as long as the others, and draws
    the line at a norm of 150, read off DINOv2's histogram. A line relative to the median is ours, for models of any
    scale; its default lies halfway between 1 and 10, on a logarithmic scale.
    """
    return norms_BN > factor * norms_BN.quantile(0.5, dim=1, keepdim=True)


def _unit(tokens_BND: Tensor) -> Tensor:
    """Tokens of length 1, or 0 where they are zeros."""
    return F.normalize(tokens_BND.to(at_least_float32(tokens_BND.dtype)), dim=-1)


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
)
