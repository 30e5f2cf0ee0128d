"""Measures of tokens: how similar the patch tokens of an image are, and how long.

Shape suffixes: B images, N patch tokens, D width. Drop prefix tokens first: ``tokens[:, layout.num_prefix:]``, with the
layout of :meth:`~vitplug.hosting.PluggedModel.place_block`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention.precision import at_least_float32

OUTLIER_FACTOR = 3.0


def feature_similarity(tokens_BND: Tensor) -> Tensor:
    """Cosine similarity between all tokens of each image (ReViT, arXiv 2402.11301).

    Args:
        tokens_BND: Patch tokens ``(B, N, D)``.

    Returns:
        ``(B, N, N)``; a token of zeros is similar to none, itself included: 0.
    """
    unit_BND = _unit(tokens_BND)
    return unit_BND @ unit_BND.transpose(1, 2)


def mean_similarity(tokens_BND: Tensor) -> Tensor:
    """Mean cosine similarity of two different tokens ``(B,)``, without the ``N x N`` pairs; NaN for a single token.

    All pairs together are the squared length of the summed unit vectors, ``sum_ij u_i u_j = |sum_i u_i|^2``.

    Args:
        tokens_BND: Patch tokens ``(B, N, D)``.
    """
    count = tokens_BND.shape[1]
    unit_BND = _unit(tokens_BND).double()
    pairs_B = unit_BND.sum(1).square().sum(1) - unit_BND.square().sum((1, 2))
    return (pairs_B / torch.tensor(count * (count - 1))).to(at_least_float32(tokens_BND.dtype))


def token_norms(tokens_BND: Tensor) -> Tensor:
    """Euclidean norms of tokens ``(B, N, D)``, ``(B, N)``."""
    return torch.linalg.vector_norm(tokens_BND, dim=-1, dtype=at_least_float32(tokens_BND.dtype))


def norm_outliers(norms_BN: Tensor, factor: float = OUTLIER_FACTOR) -> Tensor:
    """Tokens that are longer than ``factor`` times the median token of their image.

    *Vision Transformers Need Registers* (arXiv 2309.16588) finds tokens about 10 times as long as the others, and draws
    the line at a norm of 150, read off DINOv2's histogram. A line relative to the median is ours, for models of any
    scale; its default lies halfway between 1 and 10, on a logarithmic scale.

    Args:
        norms_BN: Norms of the patch tokens of a block ``(B, N)``, see :func:`token_norms`.
        factor: How many medians an ordinary token may have.

    Returns:
        ``(B, N)``, True for outliers.

    Raises:
        ValueError: If the factor is not positive.
    """
    if not factor > 0:
        raise ValueError(f'factor={factor}: expected a positive number of medians, such as {OUTLIER_FACTOR}')
    return norms_BN > factor * norms_BN.quantile(0.5, dim=1, keepdim=True)


def _unit(tokens_BND: Tensor) -> Tensor:
    """Tokens of length 1, or 0 where they are zeros."""
    return F.normalize(tokens_BND.to(at_least_float32(tokens_BND.dtype)), dim=-1)
