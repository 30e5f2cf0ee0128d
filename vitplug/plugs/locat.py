"""LocAt: *Locality-Attending Vision Transformer* (Hajimiri et al., ICLR 2026), in its two parts."""

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.bias import DenseBias
from ..attention.core import attend_bare
from ..attention.grids import GridPair, distances, finer, kept_for_few
from ..attention.precision import at_least_float32
from ..attention.site import Site
from .checks import check_choice
from .plug import LayerPlan, Plug

# Least variance: it keeps the exponent finite should one be trained towards zero.
LEAST = 1e-4


class GaussianAugment(Plug):
    """Adds a Gaussian of the distance between query and key, whose widths and height each query chooses (GAug)::

        bias[i, j] = alpha_i exp(-(dy^2 / var_i^y + dx^2 / var_i^x) / 2)

        var_i   = c sigmoid(W_v q_i + b_v - ln(c - 1))     rows and columns, c = (longer side of the grid)^2
        alpha_i = softplus(W_a q_i + b_a)

    with distances in tokens (of the finer grid, if keys and queries lie on different ones). The heads of a block share
    ``W`` and ``b``. On another grid than the configured one, variances grow with its shorter side. Prefix tokens have
    no bias. It comes on top of any position bias of the host. There is no identity setting: alpha starts at ln 2.

    Args:
        scheme: ``'paper'``, or ``'official'`` for the authors' code, which adds 0.1 (more on grids of over 26 rows) to
            the variances, for half precision, and cuts squared distances at those of the configured grid. Not taken
            over: for grids of 32 rows and more, it trains on means of 2 x 2 queries.

    Raises:
        ValueError: If ``scheme`` is something else.
    """

    name = 'gaussian_augment'
    short_name = 'gaug'

    def __init__(self, scheme: str = 'paper', layers: str | Sequence[int] = 'all'):
        super().__init__(layers)
        self.scheme = check_choice('scheme', scheme, ('paper', 'official'))

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'bias': ChosenGaussian(plan.shape.head_dims, finer(plan.site.pairs), self.scheme == 'official')}


class ChosenGaussian(nn.Module):
    """The bias of one block; ``grid`` is that of the configured image size."""

    needs_queries = True

    def __init__(self, head_dims: int, grid: tuple[int, int], is_official: bool):
        super().__init__()
        self.variance, self.height = nn.Linear(head_dims, 2), nn.Linear(head_dims, 1)
        self.grid, self.most = grid, max(grid) ** 2
        # Of the authors' code: half the largest squared distance over the square of this stays below 32,500.
        half = (max(grid) - 1) ** 2 / 2
        doublings = max(0, math.ceil(math.log2(half / 325) / 2)) if half else 0
        self.added = 0.1 * 2**doublings if is_official else 0.0
        self.farthest = 2 * min(half, 6550) if is_official else math.inf
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights as the authors do; the biases are 0."""
        for layer in (self.variance, self.height):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, site: Site, q_BWHNd: Tensor) -> DenseBias:
        """The bias of all pairs, ``(B, W, H, Nq, Nk)``, from the queries as they enter the scores."""
        pairs = site.pairs
        q_BWHNd = q_BWHNd[..., pairs.queries.num_prefix :, :]
        logits = self.variance(q_BWHNd)
        logits = logits.to(at_least_float32(logits.dtype)) - (math.log(self.most - 1) if self.most > 2 else 0)
        variance_BWHN2 = self.most * logits.sigmoid() * (min(finer(pairs)) / min(self.grid))
        height_BWHN1 = F.softplus(self.height(q_BWHNd).to(logits.dtype))
        variance_BWHN2 = (variance_BWHN2 + self.added).clamp(min=LEAST)
        squares = _minus_half_squares(pairs, self.farthest, logits.device, logits.dtype).split(pairs.keys.hw, -1)
        rows, columns = (torch.exp(of_axis / variance_BWHN2[..., i : i + 1]) for i, of_axis in enumerate(squares))
        bias = (height_BWHN1 * rows)[..., None] * columns[..., None, :]
        return DenseBias(F.pad(bias.flatten(-2), (pairs.keys.num_prefix, 0, pairs.queries.num_prefix, 0)))


@kept_for_few
def _minus_half_squares(pairs: GridPair, farthest: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """``-d^2 / 2`` of each query from each row, and then from each column, of keys, ``(Nq, hk + wk)``."""
    (dy, dx), (height, width) = distances(pairs, torch.empty(0, device=device, dtype=dtype)), pairs.queries.hw
    of_pairs = torch.cat((dy.repeat_interleave(width, 0), dx.repeat(height, 1)), dim=1)
    return of_pairs.square().clamp(max=farthest) / -2


class PatchRefinement(Plug):
    """Refines the patches of the output by one more attention, without parameters and residual (PRR)::

        x <- softmax(x x^T / sqrt(d)) x          by head, after the final norm

    It lets a loss on the class token, or on the mean, reach every patch by another way. The authors train classifiers
    with it; their segmentation takes the tokens of blocks, which it does not change.

    Raises:
        ValueError: If the last block has no attention.
    """

    name = 'patch_refinement'
    short_name = 'prr'

    def __init__(self) -> None:
        super().__init__('all')

    def build_network(self, plans: Sequence[LayerPlan]) -> Mapping[str, nn.Module]:
        last = plans[-1]
        if not last.shape.value_heads:
            raise ValueError(f'PatchRefinement: block {last.index} has no heads; leave the plug out')
        return {'normed': SelfMixing(last.embed_dims // last.shape.head_dims)}


class SelfMixing(nn.Module):
    """Attention of tokens to themselves, by head, without projections."""

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BHNd = x_BND.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        out, _ = attend_bare(x_BHNd, x_BHNd, x_BHNd, scale=x_BHNd.shape[-1] ** -0.5)
        return out.transpose(1, 2).flatten(2)
