"""How similar the patch tokens are that blocks hand on.

Shape suffixes: B images, N patch tokens, D width. Prefix tokens are dropped first.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitplug.attention.precision import at_least_float32

from ..places import Place
from .attention import of_blocks


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
