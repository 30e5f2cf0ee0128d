"""Gaussian Attention Bias (GAB).

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields*.
Trained ViTs look at a Gaussian neighbourhood; GAB gives it to them with two numbers per block.
"""

from collections.abc import Mapping, Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.bias import DenseBias, OffsetBias
from ..attention.cache import cached
from ..attention.grids import GridPair
from ..attention.site import Site
from .checks import check_choice, check_flag, check_number
from .plug import LayerPlan, Plug
from .sockets import SHARED


class GaussianAttentionBias(Plug):
    """Adds a Gaussian of the distance between query and key to the scores, per block::

        bias[i, j] = A^2 exp(-((y_i - y_j)^2 + (x_i - x_j)^2) / (2 sigma^2))

    with A and sigma learned, positions in tokens (of the finer grid, if keys and queries lie on different ones). It
    comes on top of any position bias of the host. Prefix tokens have none. There is no identity setting: at A = 0 the
    gradient vanishes too.

    Args:
        amplitude: Start of A. The paper's supplement gives 2.
        sigma: Start of sigma in tokens. The paper's supplement gives 5.
        per_head: Whether every head has its own A and sigma; one pair serves all by default.
        share_layers: Whether all blocks have one and the same Gaussian, or one for each head, as one branch of the
            paper's code has it. It belongs to the network: layer-wise learning rate decay treats it like layers
            after the blocks, and frozen blocks do not freeze it.
        coord: ``'token'`` keeps sigma in tokens at any image size; ``'relative'`` scales it with the grid,
            for the same picture at a higher resolution.
        layers: Blocks that get it, see :class:`Plug`.

    Raises:
        ValueError: If an argument is out of range, or blocks that are to share a Gaussian differ in their number of
            heads (``per_head``) or in their grid (``coord='relative'``).
    """

    name = 'gab'
    watched = {'gab_amplitude': 'A', 'gab_sigma': 'sigma'}

    def __init__(
        self,
        amplitude: float = 2.0,
        sigma: float = 5.0,
        per_head: bool = False,
        coord: str = 'token',
        share_layers: bool = False,
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        self.amplitude = check_number('amplitude', amplitude)
        if self.amplitude == 0:
            raise ValueError('amplitude=0: its gradient would be zero for ever; leave the plug out instead')
        self.sigma = check_number('sigma', sigma, least=0.01)
        self.per_head = check_flag('per_head', per_head)
        self.coord = check_choice('coord', coord, ('token', 'relative'))
        self.share_layers = check_flag('share_layers', share_layers)

    def build(self, plans: Sequence[LayerPlan]) -> tuple[Sequence[Mapping[str, nn.Module]], Mapping[str, nn.Module]]:
        if not self.share_layers or not plans:
            return super().build(plans)
        self._check_alike(plans)
        gaussian = self._build_gaussian(plans[0])
        return [{'bias': SharedGaussian(gaussian)} for _ in plans], {SHARED: gaussian}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'bias': self._build_gaussian(plan)}

    def _build_gaussian(self, plan: LayerPlan) -> 'Gaussian':
        heads = plan.num_heads if self.per_head else 1
        reference = _finer(plan.site.pairs) if self.coord == 'relative' else None
        return Gaussian(heads, self.amplitude, self.sigma, reference)

    def _check_alike(self, plans: Sequence[LayerPlan]) -> None:
        heads = sorted({plan.num_heads for plan in plans})
        if self.per_head and len(heads) > 1:
            raise ValueError(
                f'GaussianAttentionBias: share_layers=True with per_head=True is not for blocks of {heads} heads; set '
                'per_head=False, or layers to blocks with the same number of heads'
            )
        sizes = sorted({_finer(plan.site.pairs) for plan in plans})
        if self.coord == 'relative' and len(sizes) > 1:
            raise ValueError(
                f"GaussianAttentionBias: share_layers=True with coord='relative' is not for blocks of grids {sizes}; "
                "set coord='token', or layers to blocks with the same grid"
            )


class Gaussian(nn.Module):
    """``gab_amplitude`` and ``gab_sigma``, each of shape ``(H or 1,)``.

    Args:
        heads: How many Gaussians.
        amplitude: Start of A.
        sigma: Start of sigma.
        reference: Rows and columns of the grid on which sigma is in tokens; None: on every grid.
    """

    def __init__(self, heads: int, amplitude: float, sigma: float, reference: tuple[int, int] | None):
        super().__init__()
        self.start = amplitude, sigma
        self.gab_amplitude, self.gab_sigma = (nn.Parameter(torch.empty(heads)) for _ in self.start)
        self.reference = reference
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Gives A and sigma their start."""
        for parameter, value in zip((self.gab_amplitude, self.gab_sigma), self.start, strict=True):
            nn.init.constant_(parameter, value)

    def forward(self, site: Site) -> OffsetBias | DenseBias:
        """The bias: by offset where queries and keys lie on one grid, of all pairs elsewhere."""
        pairs, peak_H = site.pairs, self._peak()
        # Both axes in one operation: small ones cost a GPU the time of their start.
        exponents, shapes = _minus_squares(pairs, self.reference, peak_H.device, peak_H.dtype)
        along = torch.exp(exponents / self._width()[:, None]).split([prod(shape) for shape in shapes], dim=1)
        column, row = (values.unflatten(1, shape) for values, shape in zip(along, shapes, strict=True))
        if pairs.queries.hw == pairs.keys.hw:
            return OffsetBias(peak_H[:, None, None] * column[:, :, None] * row[:, None, :], pairs)
        values = peak_H[:, None, None, None, None] * column[:, :, None, :, None] * row[:, None, :, None, :]
        values, prefixes = values.flatten(3).flatten(1, 2), (pairs.keys.num_prefix, 0, pairs.queries.num_prefix, 0)
        # Padding by nothing is a copy, and all pairs may be a gigabyte.
        return DenseBias((F.pad(values, prefixes) if any(prefixes) else values)[None, None])

    def _peak(self) -> Tensor:
        return self.gab_amplitude.to(torch.promote_types(self.gab_sigma.dtype, torch.float32)).square()

    def _width(self) -> Tensor:
        """``2 sigma^2``; the guard keeps the exponent finite should sigma be trained towards zero."""
        wide = torch.promote_types(self.gab_sigma.dtype, torch.float32)
        return 2 * self.gab_sigma.to(wide).square().clamp(min=1e-4)

    def folded(self) -> 'ConstantGaussian':
        """The same with ``A^2`` and ``2 sigma^2`` as constants."""
        return ConstantGaussian(self)


class ConstantGaussian(Gaussian):
    """A Gaussian that is not trained any more.

    Args:
        gaussian: The trained one.
    """

    peak_H: Tensor
    width_H: Tensor

    def __init__(self, gaussian: Gaussian):
        nn.Module.__init__(self)
        self.reference = gaussian.reference
        self.register_buffer('peak_H', gaussian._peak().detach())
        self.register_buffer('width_H', gaussian._width().detach())

    def _peak(self) -> Tensor:
        return self.peak_H.to(torch.promote_types(self.peak_H.dtype, torch.float32))

    def _width(self) -> Tensor:
        return self.width_H.to(torch.promote_types(self.width_H.dtype, torch.float32))

    def folded(self) -> 'ConstantGaussian':
        return self


def _finer(pairs: GridPair) -> tuple[int, int]:
    """Rows and columns of the finer one of two grids."""
    (qh, qw), (kh, kw) = pairs.queries.hw, pairs.keys.hw
    return max(qh, kh), max(qw, kw)


@cached(64)
def _minus_squares(
    pairs: GridPair, reference: tuple[int, int] | None, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, list[torch.Size]]:
    """``-d^2`` of distances along both axes in tokens of the finer grid, or of a reference grid; one after the other.

    Returns:
        The values, and the shapes of the two axes: offsets where queries and keys lie on one grid,
        ``(queries, keys)`` elsewhere.
    """
    like = torch.empty(0, device=device, dtype=dtype)
    alike = pairs.queries.hw == pairs.keys.hw
    distances = list(pairs.offsets(like)) if alike else _distances(pairs, like)
    if reference is not None:
        distances = [d * (of / side) for d, of, side in zip(distances, reference, _finer(pairs), strict=True)]
    return torch.cat([-d.square().flatten() for d in distances]), [d.shape for d in distances]


def _distances(pairs: GridPair, like: Tensor) -> list[Tensor]:
    """Distances of the centres of queries and keys in tokens of the finer grid, ``(qh, kh)`` and ``(qw, kw)``."""
    distances = []
    for unit, *sides in zip(_finer(pairs), pairs.queries.hw, pairs.keys.hw, strict=True):
        q, k = ((torch.arange(side, device=like.device, dtype=like.dtype) + 0.5) * (unit / side) for side in sides)
        distances.append(q[:, None] - k)
    return distances


class SharedGaussian(nn.Module):
    """The network's Gaussian in a block.

    It is no sub-module: optimizers, checkpoints and wrappers of single blocks (FSDP) must find its parameters once.
    """

    def __init__(self, gaussian: Gaussian):
        super().__init__()
        self.owned = (gaussian,)

    def forward(self, site: Site) -> OffsetBias | DenseBias:
        return self.owned[0](site)

    def folded(self) -> ConstantGaussian:
        return self.owned[0].folded()
