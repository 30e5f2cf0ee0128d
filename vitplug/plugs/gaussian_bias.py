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
        coord: ``'token'`` keeps sigma in tokens at any image size; ``'relative'`` scales it with the grid,
            for the same picture at a higher resolution.
        layers: Blocks that get it, see :class:`Plug`.

    Raises:
        ValueError: If an argument is out of range.
    """

    name = 'gab'

    def __init__(
        self,
        amplitude: float = 2.0,
        sigma: float = 5.0,
        per_head: bool = False,
        coord: str = 'token',
        layers: str | Sequence[int] = 'all',
    ):
        super().__init__(layers)
        self.amplitude = check_number('amplitude', amplitude)
        if self.amplitude == 0:
            raise ValueError('amplitude=0: its gradient would be zero for ever; leave the plug out instead')
        self.sigma = check_number('sigma', sigma, least=0.01)
        self.per_head = check_flag('per_head', per_head)
        self.coord = check_choice('coord', coord, ('token', 'relative'))

    def build_layer(self, plan: LayerPlan) -> Mapping[str, nn.Module]:
        heads = plan.num_heads if self.per_head else 1
        reference = plan.grid if self.coord == 'relative' else None
        return {'bias': Gaussian(heads, self.amplitude, self.sigma, reference)}


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
