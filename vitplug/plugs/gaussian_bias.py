"""Gaussian Attention Bias (GAB).

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields*.
Trained ViTs look at a Gaussian neighbourhood; GAB gives it to them with two numbers per block.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.grids import TokenGrid
from .checks import check_choice, check_flag, check_number
from .plug import LayerPlan, Plug
from .position_bias import offsets


class GaussianAttentionBias(Plug):
    """Adds a Gaussian of the distance between query and key to the scores, per block::

        bias[i, j] = A^2 exp(-((y_i - y_j)^2 + (x_i - x_j)^2) / (2 sigma^2))

    with A and sigma learned, positions in tokens. It comes on top of any position bias the host has.
    Prefix tokens have none. There is no identity setting: at A = 0 the gradient vanishes too.

    Args:
        amplitude: Start of A. The paper's supplement gives 2.
        sigma: Start of sigma in tokens. The paper's supplement gives 5.
        per_head: Whether every head has its own A and sigma; one pair serves all by default.
        share_layers: Whether all blocks have one and the same Gaussian, or one for each head, as one branch of the
            paper's code has it. It belongs to the network: layer-wise learning rate decay counts it to what comes
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
        return [{'bias': SharedGaussian(gaussian)} for _ in plans], {'shared': gaussian}

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        return {'bias': self._build_gaussian(plan)}

    def _build_gaussian(self, plan: LayerPlan) -> 'Gaussian':
        heads = plan.num_heads if self.per_head else 1
        reference = plan.grid if self.coord == 'relative' else None
        return Gaussian(heads, self.amplitude, self.sigma, reference)

    def _check_alike(self, plans: Sequence[LayerPlan]) -> None:
        heads = sorted({plan.num_heads for plan in plans})
        if self.per_head and len(heads) > 1:
            raise ValueError(
                f'GaussianAttentionBias: share_layers=True with per_head=True is not for blocks of {heads} heads; set '
                'per_head=False, or layers to blocks with the same number of heads'
            )
        sizes = sorted({(plan.grid.height, plan.grid.width) for plan in plans})
        if self.coord == 'relative' and len(sizes) > 1:
            raise ValueError(
                f"GaussianAttentionBias: share_layers=True with coord='relative' is not for blocks of grids {sizes}; "
                "set coord='token', or layers to blocks with the same grid"
            )


class Gaussian(nn.Module):
    """``gab_amplitude`` and ``gab_sigma``, each of shape ``(H or 1,)``; gives ``(H or 1, 2h-1, 2w-1)``.

    Args:
        heads: How many Gaussians.
        amplitude: Start of A.
        sigma: Start of sigma.
        reference: The grid on which sigma is in tokens; None: on every grid.
    """

    def __init__(self, heads: int, amplitude: float, sigma: float, reference: TokenGrid | None):
        super().__init__()
        self.gab_amplitude = nn.Parameter(torch.full((heads,), amplitude))
        self.gab_sigma = nn.Parameter(torch.full((heads,), sigma))
        self.reference = reference

    def forward(self, grid: TokenGrid) -> Tensor:
        dy, dx = offsets(grid, self.gab_sigma)
        if self.reference is not None:
            dy = dy * (self.reference.height / grid.height)
            dx = dx * (self.reference.width / grid.width)
        wide = dy.dtype
        # The guard keeps the exponent finite should sigma be trained towards zero.
        width_H1 = 2 * self.gab_sigma.to(wide).square().clamp(min=1e-4)[:, None]
        column_Hy, row_Hx = (torch.exp(-(d.square()) / width_H1) for d in (dy, dx))
        peak_H = self.gab_amplitude.to(wide).square()
        return peak_H[:, None, None] * column_Hy[:, :, None] * row_Hx[:, None, :]


class SharedGaussian(nn.Module):
    """The network's Gaussian in a block.

    It is no sub-module: optimizers, checkpoints and wrappers of single blocks (FSDP) must meet its parameters once.
    """

    def __init__(self, gaussian: Gaussian):
        super().__init__()
        self.owned = (gaussian,)

    def forward(self, grid: TokenGrid) -> Tensor:
        return self.owned[0](grid)
