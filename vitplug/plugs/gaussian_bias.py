"""Gaussian Attention Bias (GAB).

*Understanding Gaussian Attention Bias of Vision Transformers Using Effective Receptive Fields*.
Trained ViTs look at a Gaussian neighbourhood; GAB gives it to them with two numbers per block.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.bias import DenseBias
from ..attention.grids import GridPair, distances, finer, kept_for_few
from ..attention.precision import at_least_float32
from ..attention.site import Site
from ..attention.tuning import surplus_of
from .checks import check_choice, check_flag, check_number
from .learned import FoldsConstants, LearnedVectors
from .plug import LayerPlan, Plug

# Minus the squared distance of pairs without a bias: exp of it is 0, and so is 0 times it.
FAR = -1e30
# Entries of the biases that are made for all blocks at once: 32 MB of float32.
MOST_TOGETHER = 1 << 23


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
        coord: ``'token'`` keeps sigma in tokens at any image size; ``'relative'`` scales it with the grid,
            for the same picture at a higher resolution than the host's ``img_size``: keep that of the training.

    Raises:
        ValueError: If an argument is out of range.
    """

    name = 'gab'
    watched = {'gab_amplitude': 'A', 'gab_sigma': 'sigma'}

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
        reference = finer(plan.site.pairs) if self.coord == 'relative' else None
        return {'bias': Gaussian(heads, self.amplitude, self.sigma, reference)}


class Gaussian(LearnedVectors, FoldsConstants):
    """``gab_amplitude`` and ``gab_sigma``, each of shape ``(H or 1,)``.

    Sigma is in tokens of a reference grid of that many rows and columns; with None, of every grid.
    """

    gab_amplitude: nn.Parameter
    gab_sigma: nn.Parameter

    def __init__(self, heads: int, amplitude: float, sigma: float, reference: tuple[int, int] | None):
        super().__init__(heads, gab_amplitude=amplitude, gab_sigma=sigma)
        self.heads, self.reference = heads, reference

    def forward(self, site: Site) -> DenseBias:
        """The bias of all pairs."""
        peak, width = self.constants()
        squares = _minus_squares(site.pairs, self.reference, peak.device, peak.dtype)
        return DenseBias(_Bell.apply(peak, width, squares), site.pairs.keys.num_tokens)

    @staticmethod
    def together(modules: Sequence['Gaussian'], site: Site) -> list[DenseBias] | None:
        """The biases of blocks with equal grids, in as many operations as one; None where that is not possible.

        All of them are in memory at once then, which for many pairs would weigh more than the operations.
        """
        pairs = site.pairs
        weight = pairs.queries.num_tokens * pairs.keys.num_tokens * modules[0].heads * len(modules)
        if len(modules) == 1 or not pairs.are_few or weight > MOST_TOGETHER:
            return None
        learned = zip(*((module.gab_amplitude, module.gab_sigma) for module in modules), strict=True)
        peak, width = _constants(*map(torch.stack, learned))
        squares = _minus_squares(pairs, modules[0].reference, peak.device, peak.dtype)
        values = _Bell.apply(peak, width, squares).unbind(0)
        return [DenseBias(value, pairs.keys.num_tokens) for value in values]

    @property
    def together_key(self) -> Any:
        """Blocks on one grid whose keys are equal get their biases at once: frozen ones apart, which need no graph.

        Each is apart whose parameters do not make the bias alone, or may not be read before its block is called, as
        shards (FSDP).
        """
        own = [p for p in self._parameters.values() if p is not None]
        sharded = any(len(p) != self.heads or hasattr(p, 'device_mesh') or hasattr(p, '_fsdp_flattened') for p in own)
        if self.is_folded or sharded or type(self).forward is not Gaussian.forward:
            return self
        return self.reference, self.heads, *((p.device, p.dtype, p.requires_grad) for p in own)

    def make_constants(self) -> tuple[Tensor, Tensor]:
        """``A^2`` and ``2 sigma^2``."""
        return _constants(self.gab_amplitude, self.gab_sigma)


def _constants(*learned: Tensor) -> tuple[Tensor, Tensor]:
    """``A^2`` and ``2 sigma^2``; the guard keeps the exponent finite should sigma be trained towards zero."""
    amplitude, sigma = (one.to(at_least_float32(one.dtype)).square() for one in learned)
    return amplitude, 2 * sigma.clamp(min=1e-4)


class _Bell(torch.autograd.Function):
    """``peak * exp(minus_squares / width)``: ``(..., H)`` twice and ``(Nq, Nk)`` to ``(..., H, Nq, Nk)``.

    Both gradients come of two sums over all pairs, in a third of autograd's operations. Backward forms the bell again,
    so that it may be differentiated, and keeps no value of a pair.
    """

    @staticmethod
    def forward(ctx: Any, peak: Tensor, width: Tensor, minus_squares: Tensor) -> Tensor:
        ctx.save_for_backward(peak, width, minus_squares)
        return torch.exp(minus_squares / width[..., None, None]).mul(peak[..., None, None])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        peak, width, minus_squares = ctx.saved_tensors
        weighed = grad * torch.exp(minus_squares / width[..., None, None])
        of_squares = (weighed * minus_squares).sum((-2, -1))
        return weighed.sum((-2, -1)), -peak * of_squares / width.square(), None


@kept_for_few
def _minus_squares(
    pairs: GridPair, reference: tuple[int, int] | None, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """``-d^2`` of all pairs, ``(Nq, Nk rounded up)``, in tokens of the finer grid, or of a reference grid.

    -infinity for pairs with a prefix token and for keys that do not exist would make gradients no numbers; FAR is as
    far as that.
    """
    dy, dx = distances(pairs, torch.empty(0, device=device, dtype=dtype))
    if reference is not None:
        dy, dx = (d * (of / side) for d, of, side in zip((dy, dx), reference, finer(pairs), strict=True))
    squares = -(dy.square()[:, None, :, None] + dx.square()[None, :, None, :]).flatten(2).flatten(0, 1)
    sides = (pairs.keys.num_prefix, surplus_of(pairs.keys.num_tokens), pairs.queries.num_prefix, 0)
    return F.pad(squares, sides, value=FAR)
